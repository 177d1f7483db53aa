/* SPDX-License-Identifier: Apache-2.0 */
/* Charts as inline SVG for the replay report. Colours and fonts come from the page's style sheet,
 * so that they follow a dark screen and a printed page. */
#ifndef KVT_TOOLS_SVG_H
#define KVT_TOOLS_SVG_H

#include <stddef.h>
#include <stdio.h>

struct svg_series {
	const char *label;
	const char *style_class; /* "a" or "b": styles line and fill */
	const double *values;	 /* one per point; NAN: nothing there */
};

struct svg_chart {
	const char *id;			 /* unique in the page */
	const char *title, *description; /* for those who cannot see it */
	const char *x_label, *y_label;
	double x_min, x_max; /* of the first and the last point (lines), or of the bars' edges */
	double y_max;	     /* 0: chosen */
	size_t points;
	const struct svg_series *series;
	size_t series_count;
	/* Writes the text of an axis value; NULL: a plain number. */
	void (*x_text)(double value, char *buffer, size_t bytes);
	void (*y_text)(double value, char *buffer, size_t bytes);
	const double *bar_edges; /* bars: points + 1 positions on a logarithmic axis; NULL: lines */
	/* Marks on the x axis, for example percentiles; may be NULL. */
	const double *marks;
	const char *const *mark_labels;
	size_t mark_count;
};

void svg_chart_write(FILE *file, const struct svg_chart *chart);
/* Text with the characters that HTML reserves escaped, and control characters replaced. */
void html_text_write(FILE *file, const char *text);

#endif
