/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a replay: one HTML file that needs nothing else, no script and no font. */
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "svg.h"

/* Points of a line, at most. */
#define POINTS 120
/* Bars of the latency chart: ten for each power of ten, from 1 us to 1,000 s. */
#define BARS_PER_DECADE 10
#define DECADES		9
#define BARS		(BARS_PER_DECADE * DECADES)

static const char style[] =
	":root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--page:#fff;"
	"--a:#0a5fb4;--b:#b35900;--bad:#b3261e}\n"
	"@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9aa4af;--line:#373e47;"
	"--page:#0d1117;--a:#6cb6ff;--b:#f0a35e;--bad:#ff8a80}}\n"
	"*{box-sizing:border-box}\n"
	"body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);margin:0 "
	"auto;padding:1.5rem;max-width:60rem}\n"
	"h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0}\n"
	".soft{color:var(--soft)}.bad{color:var(--bad);font-weight:600}\n"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));gap:.75rem;"
	"margin:1.25rem 0;padding:0;list-style:none}\n"
	".tiles li{border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem}\n"
	".tiles "
	"b{display:block;font-size:1.2rem;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
	".tiles span{color:var(--soft);font-size:.85rem}\n"
	"figure{margin:0}figcaption{color:var(--soft);font-size:.85rem}\n"
	"svg{width:100%;height:auto;display:block}\n"
	"svg text{font:11px system-ui,sans-serif;fill:var(--soft)}\n"
	"svg .axis,svg .tick{stroke:var(--soft)}svg .grid{stroke:var(--line)}\n"
	"svg .line{fill:none;stroke-width:2;stroke-linejoin:round}\n"
	"svg .line.a{stroke:var(--a)}svg .line.b{stroke:var(--b);stroke-dasharray:6 3}\n"
	"svg .bar.a{fill:var(--a)}svg .mark{stroke:var(--b);stroke-dasharray:3 3}\n"
	".scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}\n"
	"th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid var(--line);"
	"vertical-align:top}\n"
	"th{font-weight:500;color:var(--soft);width:45%}td{font-variant-numeric:tabular-nums;"
	"overflow-wrap:anywhere}\n"
	"@media print{:root{--ink:#000;--soft:#333;--line:#bbb;--page:#fff;--a:#0a5fb4;--b:#b35900}"
	"body{padding:0;max-width:none;font-size:11pt}figure,.tiles,tr{break-inside:avoid}"
	"h2{break-after:avoid}}\n";

static void percent_text(double value, char *buffer, size_t bytes)
{
	snprintf(buffer, bytes, "%.0f %%", value);
}

static void latency_text(double value, char *buffer, size_t bytes)
{
	if (value < 1e3)
		snprintf(buffer, bytes, "%.0f us", value);
	else if (value < 1e6)
		snprintf(buffer, bytes, "%.0f ms", value / 1e3);
	else
		snprintf(buffer, bytes, "%.0f s", value / 1e6);
}

static size_t point_of(double value, double max, size_t points)
{
	size_t point = max > 0 ? (size_t)(value / max * (double)points) : 0;

	return point < points ? point : points - 1;
}

/* Enough requests in a point that single ones make no spikes. */
static size_t points_choose(const struct replay_figures *figures)
{
	size_t points = figures->sample_count / 8;

	return points < 8 ? 8 : points > POINTS ? POINTS : points;
}

static void hit_rate_chart(FILE *file, const struct replay_figures *figures)
{
	static double rate[POINTS], so_far[POINTS], hits[POINTS], blocks[POINTS];
	const struct svg_series series[] = {{"at the time", "a", rate}, {"so far", "b", so_far}};
	const size_t points = points_choose(figures);
	struct svg_chart chart = {.id = "hits",
				  .title = "Hit rate over time",
				  .points = points,
				  .series = series,
				  .series_count = 2,
				  .y_max = 100,
				  .y_label = "blocks that were hits",
				  .y_text = percent_text};
	double end_s = 0, all_hits = 0, all_blocks = 0;
	char description[160];

	memset(hits, 0, sizeof(hits));
	memset(blocks, 0, sizeof(blocks));
	for (size_t i = 0; i < figures->sample_count; i++)
		if (figures->samples[i].trace_s > end_s)
			end_s = figures->samples[i].trace_s;
	/* A trace without times is drawn request by request. */
	for (size_t i = 0; i < figures->sample_count; i++) {
		const struct replay_sample *sample = &figures->samples[i];
		size_t point = end_s > 0
				       ? point_of(sample->trace_s, end_s, points)
				       : point_of((double)i, (double)figures->sample_count, points);

		hits[point] += sample->hits;
		blocks[point] += sample->blocks;
	}
	for (size_t i = 0; i < points; i++) {
		all_hits += hits[i];
		all_blocks += blocks[i];
		rate[i] = blocks[i] > 0 ? 100 * hits[i] / blocks[i] : NAN;
		so_far[i] = all_blocks > 0 ? 100 * all_hits / all_blocks : NAN;
	}
	if (end_s > 300) {
		chart.x_max = end_s / 60;
		chart.x_label = "minutes in the trace";
	} else if (end_s > 0) {
		chart.x_max = end_s;
		chart.x_label = "seconds in the trace";
	} else {
		chart.x_max = (double)figures->sample_count;
		chart.x_label = "requests";
	}
	snprintf(description, sizeof(description),
		 "Share of prompt blocks found in the store, from the first to the last request; "
		 "%.1f percent over all.",
		 all_blocks > 0 ? 100 * all_hits / all_blocks : 0);
	chart.description = description;
	svg_chart_write(file, &chart);
}

static void latency_chart(FILE *file, const struct replay_figures *figures)
{
	static double counts[BARS], edges[BARS + 1];
	static const char *const labels[] = {"p50", "p95", "p99"};
	double marks[3] = {replay_load_us(figures, 0.50), replay_load_us(figures, 0.95),
			   replay_load_us(figures, 0.99)};
	struct svg_series series = {"requests", "a", NULL};
	struct svg_chart chart = {.id = "latency",
				  .title = "Distribution of load times",
				  .series = &series,
				  .series_count = 1,
				  .x_label = "time to load a request's hits (logarithmic)",
				  .y_label = "requests",
				  .x_text = latency_text,
				  .marks = marks,
				  .mark_labels = labels,
				  .mark_count = 3};
	char description[160];
	size_t first = BARS, last = 0;

	memset(counts, 0, sizeof(counts));
	for (size_t i = 0; i <= BARS; i++)
		edges[i] = pow(10, (double)i / BARS_PER_DECADE);
	for (size_t i = 0; i < figures->load_count; i++) {
		double us = (double)figures->loads_ns[i] / 1e3;
		double place = us > 1 ? floor(log10(us) * BARS_PER_DECADE) : 0;
		size_t bar = place < BARS ? (size_t)place : BARS - 1;

		counts[bar]++;
		first = bar < first ? bar : first;
		last = bar > last ? bar : last;
	}
	if (figures->load_count == 0) {
		fputs("<p>No request had a hit.</p>\n", file);
		return;
	}
	/* Whole decades, so that the axis begins and ends at a mark. */
	first = first / BARS_PER_DECADE * BARS_PER_DECADE;
	last = (last / BARS_PER_DECADE + 1) * BARS_PER_DECADE;
	chart.points = last - first;
	chart.bar_edges = edges + first;
	chart.x_min = edges[first];
	chart.x_max = edges[last];
	series.values = counts + first;
	for (size_t i = 0; i < 3; i++)
		marks[i] = fmin(fmax(marks[i], chart.x_min), chart.x_max);
	snprintf(description, sizeof(description),
		 "Histogram of %zu loads: half took at most %.0f, 95 percent at most %.0f, 99 "
		 "percent at most %.0f microseconds.",
		 figures->load_count, marks[0], marks[1], marks[2]);
	chart.description = description;
	svg_chart_write(file, &chart);
}

static void traffic_chart(FILE *file, const struct replay_options *options,
			  const struct replay_figures *figures)
{
	static double loaded[POINTS], stored[POINTS];
	const struct svg_series series[] = {{"loaded", "a", loaded}, {"stored", "b", stored}};
	struct svg_chart chart = {
		.id = "traffic",
		.title = "Bytes loaded and stored over time",
		.series = series,
		.series_count = 2,

		.x_label = "seconds since the replay began",
		.y_label = "MB/s",
	};
	const size_t points = points_choose(figures);
	double width_s;
	char description[160];

	chart.points = points;
	width_s = figures->seconds / (double)points;
	memset(loaded, 0, sizeof(loaded));
	memset(stored, 0, sizeof(stored));
	for (size_t i = 0; width_s > 0 && i < figures->sample_count; i++) {
		const struct replay_sample *sample = &figures->samples[i];
		size_t point = point_of(sample->done_s, figures->seconds, points);
		double scale = (double)options->block_bytes / 1e6 / width_s;

		loaded[point] += sample->hits * scale;
		stored[point] += sample->stored * scale;
	}
	chart.x_max = figures->seconds;
	snprintf(description, sizeof(description),
		 "Loaded and stored megabytes a second during the replay of %.1f seconds.",
		 figures->seconds);
	chart.description = description;
	svg_chart_write(file, &chart);
}

static void row(FILE *file, const char *name, const char *format, ...) KVT_PRINTF(3, 4);

static void row(FILE *file, const char *name, const char *format, ...)
{
	char text[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(file, "<tr><th scope=\"row\">%s</th><td>", name);
	html_text_write(file, text);
	fputs("</td></tr>\n", file);
}

static void tile(FILE *file, const char *value, const char *label)
{
	fputs("<li><b>", file);
	html_text_write(file, value);
	fprintf(file, "</b><span>%s</span></li>\n", label);
}

static void tiles_write(FILE *file, const struct replay_options *options,
			const struct replay_figures *figures)
{
	char text[64];

	fputs("<ul class=\"tiles\">\n", file);
	snprintf(text, sizeof(text), "%.1f %%",
		 figures->blocks != 0 ? 100 * (double)figures->hits / (double)figures->blocks : 0);
	tile(file, text, "of all blocks were hits");
	tile(file, cli_bytes_text(figures->hits * options->block_bytes, text, sizeof(text)),
	     "loaded");
	tile(file, cli_bytes_text(figures->stored * options->block_bytes, text, sizeof(text)),
	     "stored");
	snprintf(text, sizeof(text), "%.2f ms", replay_load_us(figures, 0.50) / 1e3);
	tile(file, text, "median load of a request");
	snprintf(text, sizeof(text), "%.0f s", replay_seconds_saved(figures));
	tile(file, text, "of prefill saved");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)figures->corrupt);
	tile(file, text,
	     options->verify ? "corrupt blocks, every byte compared" : "corrupt blocks");
	fputs("</ul>\n", file);
}

static void results_write(FILE *file, const struct replay_options *options,
			  const struct replay_figures *figures)
{
	double seconds = figures->seconds > 0 ? figures->seconds : 1;

	fputs("<h2>Results</h2>\n<div class=\"scroll\"><table>\n", file);
	row(file, "Requests", "%llu", (unsigned long long)figures->requests);
	row(file, "Blocks", "%llu", (unsigned long long)figures->blocks);
	row(file, "Hits", "%llu blocks, %llu tokens", (unsigned long long)figures->hits,
	    (unsigned long long)figures->hit_tokens);
	row(file, "Loaded", "%llu bytes, %.2f GB/s",
	    (unsigned long long)(figures->hits * options->block_bytes),
	    (double)(figures->hits * options->block_bytes) / 1e9 / seconds);
	row(file, "Stored", "%llu blocks, %llu bytes, %.2f GB/s",
	    (unsigned long long)figures->stored,
	    (unsigned long long)(figures->stored * options->block_bytes),
	    (double)(figures->stored * options->block_bytes) / 1e9 / seconds);
	row(file, "Were there already", "%llu blocks", (unsigned long long)figures->skipped);
	row(file, "Vanished between look-up and load", "%llu blocks",
	    (unsigned long long)figures->vanished);
	row(file, "Load of a request's hits, p50 / p95 / p99", "%.2f / %.2f / %.2f ms",
	    replay_load_us(figures, 0.50) / 1e3, replay_load_us(figures, 0.95) / 1e3,
	    replay_load_us(figures, 0.99) / 1e3);
	row(file, "Prefill of the hits", "%.1f s", figures->prefill_saved_s);
	row(file, "Loads of the hits", "%.1f s", figures->load_s);
	row(file, "Saved", "%.1f s", replay_seconds_saved(figures));
	row(file, "Corrupt blocks", "%llu", (unsigned long long)figures->corrupt);
	row(file, "Errors", "%llu", (unsigned long long)figures->errors);
	row(file, "Wall clock", "%.2f s", figures->seconds);
	row(file, "CPU", "%.2f s of the whole process", figures->cpu_seconds);
	if (figures->backend[0] != '\0')
		row(file, "Backend", "%s", figures->backend);
	if (options->speed != 0)
		row(file, "Latest start behind its time", "%.3f s", figures->lag_s);
	fputs("</table></div>\n", file);
}

static void configuration_write(FILE *file, const struct replay_options *options,
				const char *store_uri)
{
	fputs("<h2>Configuration</h2>\n<div class=\"scroll\"><table>\n", file);
	row(file, "Trace", "%s", options->trace_path);
	row(file, "Store", "%s", store_uri);
	row(file, "Block", "%llu bytes, %llu tokens", (unsigned long long)options->block_bytes,
	    (unsigned long long)options->block_tokens);
	if (options->requests != 0)
		row(file, "Requests at most", "%llu", (unsigned long long)options->requests);
	if (options->speed != 0)
		row(file, "Pace", "%g times the trace's clock", options->speed);
	else
		row(file, "Pace", "as fast as possible");
	row(file, "Requests at a time", "%llu", (unsigned long long)options->concurrency);
	row(file, "Blocks in a load or store", "at most %llu",
	    (unsigned long long)options->job_blocks);
	row(file, "Memory for blocks in flight", "%llu bytes",
	    (unsigned long long)options->memory_bytes);
	row(file, "Loaded bytes compared", "%s", options->verify ? "yes, all" : "no");
	row(file, "Prefill speed assumed", "%.0f tokens/s", options->prefill_tokens_per_s);
	row(file, "Seed", "%llu", (unsigned long long)options->seed);
	row(file, "kvtier", "%s", kvt_version());
	fputs("</table></div>\n", file);
}

static void page_write(FILE *file, const struct replay_options *options,
		       const struct replay_figures *figures, const char *store_uri)
{
	time_t now = time(NULL);
	struct tm parts;
	char when[32] = "";

	if (gmtime_r(&now, &parts) != NULL)
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &parts);
	fprintf(file,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
		"<title>kvtier replay</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n"
		"<h1>kvtier replay</h1>\n<p class=\"soft\">%s, ",
		style, when);
	html_text_write(file, options->trace_path);
	fputs(" on ", file);
	html_text_write(file, store_uri);
	fputs("</p>\n", file);
	if (figures->corrupt != 0 || figures->errors != 0) {
		fprintf(file, "<p class=\"bad\">%llu corrupt blocks, %llu errors; the first: ",
			(unsigned long long)figures->corrupt, (unsigned long long)figures->errors);
		html_text_write(file, figures->detail);
		fputs("</p>\n", file);
	}
	tiles_write(file, options, figures);
	fputs("<h2>Hit rate</h2>\n<figure>\n", file);
	hit_rate_chart(file, figures);
	fputs("<figcaption>A hit is a block of a prompt that was loaded instead of computed, with "
	      "all blocks before it.</figcaption>\n</figure>\n<h2>Load times</h2>\n<figure>\n",
	      file);
	latency_chart(file, figures);
	fputs("<figcaption>From asking for a request's hits until the last of their bytes was in "
	      "memory and checked.</figcaption>\n</figure>\n<h2>Traffic</h2>\n<figure>\n",
	      file);
	traffic_chart(file, options, figures);
	fputs("<figcaption>Counted when a request is finished.</figcaption>\n</figure>\n", file);
	results_write(file, options, figures);
	configuration_write(file, options, store_uri);
	fputs("</main>\n</body>\n</html>\n", file);
}

int replay_report_check(const char *path)
{
	struct stat st;
	char folder[PATH_MAX];
	const char *slash = strrchr(path, '/');

	/* The report takes the place of what is there: that must not be a device, a folder or a
	 * link. */
	if (lstat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
		cli_error("--report: '%s': not a regular file, expected one or a new name", path);
		return KVT_EINVAL;
	}
	if ((size_t)snprintf(folder, sizeof(folder), "%.*s",
			     slash == NULL ? 1 : (int)(slash - path + 1),
			     slash == NULL ? "." : path) >= sizeof(folder) ||
	    access(folder, W_OK | X_OK) != 0) {
		cli_error("--report: '%s': %s, expected a file that can be written", path,
			  strerror(errno));
		return KVT_EINVAL;
	}
	return 0;
}

int replay_report_write(const struct replay_options *options, const struct replay_figures *figures,
			const char *store_uri)
{
	const char *path = options->report_path;
	char temporary[PATH_MAX];
	mode_t mask;
	FILE *file;
	int fd, error = 0;

	if ((size_t)snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path) >=
	    sizeof(temporary)) {
		cli_error("--report: '%s': %s", path, strerror(ENAMETOOLONG));
		return KVT_EINVAL;
	}
	fd = mkostemp(temporary, O_CLOEXEC);
	if (fd < 0) {
		cli_error("--report: '%s': %s, expected a file that can be written", path,
			  strerror(errno));
		return KVT_EINVAL;
	}
	/* A report holds no KV bytes: whoever may read new files may read it. */
	mask = umask(0);
	umask(mask);
	fchmod(fd, 0666 & ~mask);
	file = fdopen(fd, "w");
	if (file == NULL) {
		error = errno;
		close(fd);
	} else {
		page_write(file, options, figures, store_uri);
		if (fflush(file) != 0 || ferror(file))
			error = errno != 0 ? errno : EIO;
		if (fclose(file) != 0 && error == 0)
			error = errno;
	}
	if (error == 0 && rename(temporary, path) < 0)
		error = errno;
	if (error == 0)
		return 0;
	unlink(temporary);
	cli_error("--report: '%s': %s", path, strerror(error));
	return error == ENOSPC ? KVT_ENOSPC : KVT_EIO;
}
