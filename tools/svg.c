/* SPDX-License-Identifier: Apache-2.0 */
/* Draws line and bar charts. Coordinates: a 720 x 280 view box that scales with the page. */
#include "svg.h"

#include <math.h>

#define WIDTH  720.0
#define HEIGHT 280.0
#define LEFT   70.0
#define RIGHT  24.0
#define TOP    28.0
#define BOTTOM 46.0

void html_text_write(FILE *file, const char *text)
{
	for (; *text != '\0'; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text, file);
			break;
		}
}

/* A round step that gives at most `most` steps up to `range`. */
static double step_choose(double range, unsigned most)
{
	double step = pow(10, floor(log10(range / most)));

	for (;;) {
		if (range / step <= most)
			return step;
		if (range / (2 * step) <= most)
			return 2 * step;
		if (range / (5 * step) <= most)
			return 5 * step;
		step *= 10;
	}
}

static double y_position(const struct svg_chart *chart, double value)
{
	return HEIGHT - BOTTOM - value / chart->y_max * (HEIGHT - TOP - BOTTOM);
}

static double x_position(const struct svg_chart *chart, double value)
{
	double share;

	if (chart->bar_edges != NULL)
		share = (log(value) - log(chart->x_min)) / (log(chart->x_max) - log(chart->x_min));
	else
		share = (value - chart->x_min) / (chart->x_max - chart->x_min);
	return LEFT + share * (WIDTH - LEFT - RIGHT);
}

static void text_write(FILE *file, double x, double y, const char *anchor, const char *text)
{
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
	html_text_write(file, text);
	fputs("</text>\n", file);
}

static void value_text(void (*text_fn)(double, char *, size_t), double value, char *buffer,
		       size_t bytes)
{
	if (text_fn != NULL)
		text_fn(value, buffer, bytes);
	else
		snprintf(buffer, bytes, "%g", value);
}

static void x_tick_write(FILE *file, const struct svg_chart *chart, double value)
{
	char text[48];
	double x = x_position(chart, value);

	fprintf(file, "<line class=\"tick\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x,
		x, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4);
	value_text(chart->x_text, value, text, sizeof(text));
	text_write(file, x, HEIGHT - BOTTOM + 16, "middle", text);
}

static void axes_write(FILE *file, const struct svg_chart *chart)
{
	double step = step_choose(chart->y_max, 5);
	char text[48];

	for (double value = 0; value <= chart->y_max * 1.0001; value += step) {
		double y = y_position(chart, value);

		fprintf(file,
			"<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
			value == 0 ? "axis" : "grid", LEFT, WIDTH - RIGHT, y, y);
		value_text(chart->y_text, value, text, sizeof(text));
		text_write(file, LEFT - 6, y + 4, "end", text);
	}
	if (chart->bar_edges != NULL) {
		for (double value = pow(10, ceil(log10(chart->x_min) - 1e-9));
		     value <= chart->x_max * 1.0001; value *= 10)
			x_tick_write(file, chart, value);
	} else {
		step = step_choose(chart->x_max - chart->x_min, 8);
		for (double value = ceil(chart->x_min / step) * step;
		     value <= chart->x_max + step * 1e-6; value += step)
			x_tick_write(file, chart, value);
	}
	text_write(file, LEFT + (WIDTH - LEFT - RIGHT) / 2, HEIGHT - 8, "middle", chart->x_label);
	text_write(file, LEFT, 14, "start", chart->y_label);
}

static void line_write(FILE *file, const struct svg_chart *chart, const struct svg_series *series)
{
	const double step =
		chart->points > 1 ? (chart->x_max - chart->x_min) / (double)(chart->points - 1) : 0;
	size_t drawn = 0;

	fprintf(file, "<path class=\"line %s\" d=\"", series->style_class);
	for (size_t i = 0; i < chart->points; i++) {
		if (isnan(series->values[i]))
			continue;
		fprintf(file, "%s%.1f %.1f", drawn++ != 0 ? " L" : "M",
			x_position(chart, chart->x_min + step * (double)i),
			y_position(chart, series->values[i]));
	}
	fputs("\"/>\n", file);
}

static void bars_write(FILE *file, const struct svg_chart *chart, const struct svg_series *series)
{
	for (size_t i = 0; i < chart->points; i++) {
		double left = x_position(chart, chart->bar_edges[i]);
		double right = x_position(chart, chart->bar_edges[i + 1]);
		double top = y_position(chart, series->values[i]);

		if (series->values[i] > 0)
			fprintf(file,
				"<rect class=\"bar %s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
				"height=\"%.1f\"/>\n",
				series->style_class, left + 0.5, top, right - left - 1,
				HEIGHT - BOTTOM - top);
	}
}

static void legend_write(FILE *file, const struct svg_chart *chart)
{
	double x = WIDTH - RIGHT;

	for (size_t i = chart->series_count; chart->series_count > 1 && i-- > 0;) {
		size_t length = 0;

		while (chart->series[i].label[length] != '\0')
			length++;
		text_write(file, x, 14, "end", chart->series[i].label);
		x -= 7.0 * (double)length + 10;
		fprintf(file,
			"<line class=\"line %s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"10\" "
			"y2=\"10\"/>\n",
			chart->series[i].style_class, x - 16, x);
		x -= 30;
	}
}

void svg_chart_write(FILE *file, const struct svg_chart *chart)
{
	struct svg_chart drawn = *chart;

	for (size_t s = 0; chart->y_max == 0 && s < chart->series_count; s++)
		for (size_t i = 0; i < chart->points; i++)
			if (chart->series[s].values[i] > drawn.y_max)
				drawn.y_max = chart->series[s].values[i];
	if (drawn.y_max <= 0)
		drawn.y_max = 1;
	if (chart->y_max == 0)
		drawn.y_max = ceil(drawn.y_max / step_choose(drawn.y_max, 5)) *
			      step_choose(drawn.y_max, 5);
	if (!(drawn.x_max > drawn.x_min))
		drawn.x_max = drawn.bar_edges != NULL ? drawn.x_min * 10 : drawn.x_min + 1;
	fprintf(file,
		"<svg role=\"img\" aria-labelledby=\"%s-t %s-d\" viewBox=\"0 0 %.0f %.0f\" "
		"preserveAspectRatio=\"xMidYMid meet\">\n<title id=\"%s-t\">",
		chart->id, chart->id, WIDTH, HEIGHT, chart->id);
	html_text_write(file, chart->title);
	fprintf(file, "</title>\n<desc id=\"%s-d\">", chart->id);
	html_text_write(file, chart->description);
	fputs("</desc>\n", file);
	axes_write(file, &drawn);
	for (size_t i = 0; i < chart->series_count; i++) {
		if (chart->bar_edges != NULL)
			bars_write(file, &drawn, &chart->series[i]);
		else
			line_write(file, &drawn, &chart->series[i]);
	}
	for (size_t i = 0; i < chart->mark_count; i++) {
		double x = x_position(&drawn, chart->marks[i]);

		fprintf(file,
			"<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n",
			x, x, TOP + 12.0 * (double)i, HEIGHT - BOTTOM);
		text_write(file, x + 4, TOP + 10 + 12.0 * (double)i, "start",
			   chart->mark_labels[i]);
	}
	legend_write(file, &drawn);
	fputs("</svg>\n", file);
}
