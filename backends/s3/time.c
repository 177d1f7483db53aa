/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways in which S3 writes times, read without the locale and without the time zone of the
 * machine. */
#include "xml.h"

#include <string.h>

struct s3_date {
	int year, month, day, hour, minute, second;
};

static bool s3_digits(const char **textp, int digits, int *valuep)
{
	const char *text = *textp;
	int value = 0;

	for (int i = 0; i < digits; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		value = value * 10 + (text[i] - '0');
	}
	*textp = text + digits;
	*valuep = value;
	return true;
}

static bool s3_literal(const char **textp, const char *literal)
{
	size_t n = strlen(literal);

	if (strncmp(*textp, literal, n) != 0)
		return false;
	*textp += n;
	return true;
}

static bool s3_clock(const char **textp, struct s3_date *date)
{
	return s3_digits(textp, 2, &date->hour) && s3_literal(textp, ":") &&
	       s3_digits(textp, 2, &date->minute) && s3_literal(textp, ":") &&
	       s3_digits(textp, 2, &date->second);
}

/* "2024-01-31T12:34:56.000Z" */
static bool s3_iso_date(const char *text, struct s3_date *date)
{
	if (!s3_digits(&text, 4, &date->year) || !s3_literal(&text, "-") ||
	    !s3_digits(&text, 2, &date->month) || !s3_literal(&text, "-") ||
	    !s3_digits(&text, 2, &date->day) || !s3_literal(&text, "T") || !s3_clock(&text, date))
		return false;
	if (s3_literal(&text, ".")) {
		size_t digits = strspn(text, "0123456789");

		if (digits == 0)
			return false;
		text += digits;
	}
	return strcmp(text, "Z") == 0 || strcmp(text, "+00:00") == 0;
}

/* "Wed, 31 Jan 2024 12:34:56 GMT" */
static bool s3_http_date(const char *text, struct s3_date *date)
{
	static const char days[] = "Sun,Mon,Tue,Wed,Thu,Fri,Sat,";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	bool is_day = false;

	for (const char *day = days; *day && !is_day; day += 4)
		is_day = strncmp(text, day, 4) == 0;
	if (!is_day)
		return false;
	text += 4;
	if (!s3_literal(&text, " ") || !s3_digits(&text, 2, &date->day) || !s3_literal(&text, " "))
		return false;
	date->month = 0;
	for (int i = 0; i < 12 && date->month == 0; i++)
		if (strncmp(text, &months[3 * i], 3) == 0)
			date->month = i + 1;
	if (date->month == 0)
		return false;
	text += 3;
	return s3_literal(&text, " ") && s3_digits(&text, 4, &date->year) &&
	       s3_literal(&text, " ") && s3_clock(&text, date) && strcmp(text, " GMT") == 0;
}

static bool s3_is_leap(int year)
{
	return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static bool s3_is_date(const struct s3_date *date)
{
	static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	int length;

	if (date->month < 1 || date->month > 12)
		return false;
	length = lengths[date->month - 1] + (date->month == 2 && s3_is_leap(date->year));
	return date->year >= 1970 && date->day >= 1 && date->day <= length && date->hour < 24 &&
	       date->minute < 60 && date->second <= 60;
}

int64_t kvt__s3_time(const char *text)
{
	static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
	struct s3_date date;
	int64_t days, past;

	if (!(s3_iso_date(text, &date) || s3_http_date(text, &date)) || !s3_is_date(&date))
		return -1;
	past = date.year - 1; /* whole years since the year 1 */
	days = past * 365 + past / 4 - past / 100 + past / 400 - 719162;
	days += before[date.month - 1] + (date.month > 2 && s3_is_leap(date.year)) + date.day - 1;
	return ((days * 24 + date.hour) * 60 + date.minute) * 60 + date.second;
}

int64_t kvt__s3_age_ns(int64_t now_s, int64_t modified_s)
{
	const int64_t ns = 1000000000, most_s = INT64_MAX / ns;

	if (modified_s < 0)
		return -1;
	if (now_s <= modified_s)
		return 0;
	return (now_s - modified_s < most_s ? now_s - modified_s : most_s) * ns;
}
