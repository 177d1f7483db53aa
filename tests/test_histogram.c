/* SPDX-License-Identifier: Apache-2.0 */
/* Latency histograms: buckets, their bounds, percentiles. */
#include "histogram.h"

#include <math.h>
#include <string.h>

#include "support.h"

#define LAST (KVT_HISTOGRAM_BUCKETS - 1)

static void buckets_follow_each_other_without_a_gap(void **state)
{
	(void)state;
	for (uint32_t b = 0; b < LAST; b++) {
		uint64_t upper = kvt__histogram_upper(b);
		assert_int_equal(kvt__histogram_bucket(upper), b);
		assert_int_equal(kvt__histogram_bucket(upper + 1), b + 1);
	}
}

static void each_power_of_two_has_four_buckets(void **state)
{
	(void)state;
	for (uint32_t exponent = 2; exponent <= 40; exponent++) {
		uint64_t value = UINT64_C(1) << exponent;
		for (uint32_t quarter = 0; quarter < 4; quarter++)
			assert_int_equal(kvt__histogram_bucket(value + quarter * (value / 4)),
					 4 * (exponent - 1) + quarter);
	}
}

static void small_and_enormous_values_have_a_bucket(void **state)
{
	(void)state;
	for (uint64_t value = 0; value < 8; value++)
		assert_int_equal(kvt__histogram_bucket(value), value);
	assert_int_equal(kvt__histogram_upper(LAST), (UINT64_C(1) << 41) - 1);
	assert_int_equal(kvt__histogram_bucket((UINT64_C(1) << 41) - 1), LAST);
	assert_int_equal(kvt__histogram_bucket(UINT64_C(1) << 41), LAST);
	assert_int_equal(kvt__histogram_bucket(UINT64_MAX), LAST);
}

static void an_empty_histogram_has_no_percentiles(void **state)
{
	struct kvt_histogram histogram;

	(void)state;
	memset(&histogram, 0, sizeof(histogram));
	assert_int_equal(kvt_histogram_percentile(&histogram, 0.5), 0);
	assert_int_equal(kvt_histogram_percentile(NULL, 0.5), 0);
}

static void percentiles_are_bounds_of_the_ranked_value(void **state)
{
	struct kvt_histogram histogram;
	uint64_t sum = 0;

	(void)state;
	memset(&histogram, 0, sizeof(histogram));
	for (uint64_t value = 1; value <= 1000; value++) {
		kvt__histogram_add(&histogram, value * 1000);
		sum += value * 1000;
	}
	assert_int_equal(histogram.count, 1000);
	assert_int_equal(histogram.sum_ns, sum);
	for (uint64_t rank = 1; rank <= 1000; rank++) {
		uint64_t bound = kvt_histogram_percentile(&histogram, (double)rank / 1000);
		uint64_t value = rank * 1000;
		/* Rounding of the fraction may take the next rank, never an earlier one. */
		assert_true(bound >= value);
		assert_true(bound <= (value + 1000) + (value + 1000) / 4);
	}
	assert_int_equal(kvt_histogram_percentile(&histogram, 0.5),
			 kvt__histogram_upper(kvt__histogram_bucket(500000)));
	assert_int_equal(kvt_histogram_percentile(&histogram, 0),
			 kvt__histogram_upper(kvt__histogram_bucket(1000)));
	assert_int_equal(kvt_histogram_percentile(&histogram, 1),
			 kvt__histogram_upper(kvt__histogram_bucket(1000000)));
}

static void fractions_out_of_range_mean_the_nearest_one(void **state)
{
	struct kvt_histogram histogram;

	(void)state;
	memset(&histogram, 0, sizeof(histogram));
	kvt__histogram_add(&histogram, 2);
	kvt__histogram_add(&histogram, 3);
	assert_int_equal(kvt_histogram_percentile(&histogram, -1), 2);
	assert_int_equal(kvt_histogram_percentile(&histogram, (double)NAN), 2);
	assert_int_equal(kvt_histogram_percentile(&histogram, (double)-INFINITY), 2);
	assert_int_equal(kvt_histogram_percentile(&histogram, 2), 3);
	assert_int_equal(kvt_histogram_percentile(&histogram, (double)INFINITY), 3);
	/* The smallest rank that covers the fraction. */
	assert_int_equal(kvt_histogram_percentile(&histogram, 0.5), 2);
	assert_int_equal(kvt_histogram_percentile(&histogram, 0.51), 3);
}

static void counts_beyond_a_double_are_still_found(void **state)
{
	struct kvt_histogram histogram;

	(void)state;
	memset(&histogram, 0, sizeof(histogram));
	histogram.buckets[7] = UINT64_MAX - 1;
	histogram.buckets[9] = 1;
	assert_int_equal(kvt_histogram_percentile(&histogram, 0.5), kvt__histogram_upper(7));
	assert_int_equal(kvt_histogram_percentile(&histogram, 1), kvt__histogram_upper(9));
	assert_true(kvt_histogram_percentile(&histogram, 0.99999999999999988) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_follow_each_other_without_a_gap),
		cmocka_unit_test(each_power_of_two_has_four_buckets),
		cmocka_unit_test(small_and_enormous_values_have_a_bucket),
		cmocka_unit_test(an_empty_histogram_has_no_percentiles),
		cmocka_unit_test(percentiles_are_bounds_of_the_ranked_value),
		cmocka_unit_test(fractions_out_of_range_mean_the_nearest_one),
		cmocka_unit_test(counts_beyond_a_double_are_still_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
