/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs on memory that the CPU cannot touch, whose copies happen later on a thread of the device's
 * own; and ready events, of plain memory too. */
#include "support.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_backend.h"
#include "fake_device.h"

#define MEMORY (16 << 20)

struct scene {
	struct fake_store *fake;
	struct fake_gpu *gpu;
	struct test_bed bed;
	size_t used; /* of the device's memory */
};

static void scene_init(struct scene *s, bool stream_order, const struct fake_config *config)
{
	memset(s, 0, sizeof(*s));
	s->fake = fake_store_create(config);
	s->gpu = fake_gpu_create(MEMORY, stream_order);
	test_bed_init(&s->bed);
}

static void scene_open(struct scene *s)
{
	static const struct test_group page = {1, 0, 1, {4096}};
	struct test_transfer first;

	assert_ok(fake_gpu_open(s->gpu, NULL, &s->bed.device));
	test_bed_open(&s->bed, fake_store_uri(s->fake));
	/* config.json is out of the way. */
	test_transfer_init_at(&first, 1, &page, 1, 999, fake_gpu_memory(s->gpu), MEMORY,
			      fake_gpu_ptr(s->gpu, 0));
	test_store(&s->bed, &first, KVT_STATUS_STORED);
	test_transfer_fini(&first);
	s->bed.next_id = 1000;
}

static void scene_close(struct scene *s)
{
	assert_ok(kvt_worker_drain(s->bed.worker, TEST_LIMIT_MS));
	assert_int_equal(fake_gpu_outstanding(s->gpu), 0);
	test_bed_close(&s->bed);
	assert_int_equal(fake_gpu_lanes(s->gpu), 0);
	assert_ok(kvt_device_close(s->bed.device));
	if (fake_violation(s->fake))
		fail_msg("%s", fake_violation(s->fake));
	if (fake_gpu_violation(s->gpu))
		fail_msg("%s", fake_gpu_violation(s->gpu));
	assert_int_equal(fake_open_handles(s->fake), 0);
	fake_store_destroy(s->fake);
	fake_gpu_destroy(s->gpu);
}

/* A transfer in the device's memory, behind those made before. */
static void place(struct scene *s, struct test_transfer *t, uint32_t blocks_per_chunk,
		  const struct test_group *groups, uint32_t group_count, uint64_t key_seed)
{
	size_t bytes = test_transfer_memory(blocks_per_chunk, groups, group_count);

	assert_true(s->used + bytes <= MEMORY);
	test_transfer_init_at(t, blocks_per_chunk, groups, group_count, key_seed,
			      fake_gpu_memory(s->gpu) + s->used, bytes,
			      fake_gpu_ptr(s->gpu, s->used));
	s->used += bytes;
}

static bool touched(struct scene *s, const struct test_transfer *t)
{
	return fake_gpu_touches(s->gpu, (size_t)(t->memory - fake_gpu_memory(s->gpu)),
				t->memory_bytes);
}

static const struct test_group page = {1, 0, 1, {4096}};

/* ---- Moving bytes ---- */

static void every_shape_comes_back(void **state)
{
	static const struct {
		uint32_t blocks_per_chunk, group_count;
		struct test_group groups[2];
	} shapes[] = {
		{1, 1, {{1, 0, 1, {4096}}}},
		{4, 1, {{8, 0, 6, {1000, 1000, 1000, 1000, 1000, 1000}}}},
		{4, 1, {{6, 3, 2, {512, 512}}}},
		{4, 1, {{8, 4, 3, {100, 3000, 17}}}},
		{4, 2, {{5, 1, 2, {300, 200}}, {9, 2, 0, {0}}}},
		{2, 1, {{4, 0, 3, {50000, 50000, 50000}}}},
		{8, 1, {{13, 5, 2, {30000, 10001}}}},
		{1, 1, {{3, 0, 1, {(1 << 20) + 1}}}},
		{64, 1, {{128, 0, 6, {64, 64, 64, 64, 64, 64}}}},
	};
	static const struct fake_config configs[] = {
		{.capabilities = FAKE_CAPABILITIES},
		{.capabilities = FAKE_CAPABILITIES | KVT_CAP_FULL_BODY, .memory_alignment = 4096},
		{.capabilities = FAKE_CAPABILITIES, .blocking = true},
		{.capabilities = FAKE_CAPABILITIES, .rewind = true, .youngest_first = true},
		{.capabilities = 0, .min_part_bytes = 100000, .max_iov = 2},
	};

	(void)state;
	for (size_t c = 0; c < TEST_COUNT(configs); c++)
		for (int stream_order = 0; stream_order < 2; stream_order++) {
			struct scene s;
			scene_init(&s, stream_order, &configs[c]);
			scene_open(&s);
			for (size_t i = 0; i < TEST_COUNT(shapes); i++) {
				struct test_transfer t;
				s.used = 0;
				place(&s, &t, shapes[i].blocks_per_chunk, shapes[i].groups,
				      shapes[i].group_count, 100 + i);
				test_store(&s.bed, &t, KVT_STATUS_STORED);
				test_transfer_check(&t);
				test_store(&s.bed, &t, KVT_STATUS_SKIPPED);
				test_load(&s.bed, &t, KVT_STATUS_LOADED);
				test_transfer_fini(&t);
			}
			assert_true(fake_gpu_copies(s.gpu) > 0);
			scene_close(&s);
		}
}

static void a_merge_on_the_device_keeps_both_halves(void **state)
{
	static const struct test_group halves[] = {
		{2, 0, 2, {30000, 20001}}, {2, 2, 2, {30000, 20001}}, {4, 0, 2, {30000, 20001}}};
	struct scene s;
	struct test_transfer t[3];

	(void)state;
	scene_init(&s, true, NULL);
	scene_open(&s);
	for (int i = 0; i < 3; i++)
		place(&s, &t[i], 4, &halves[i], 1, 7);
	test_store(&s.bed, &t[0], KVT_STATUS_STORED);
	test_store(&s.bed, &t[1], KVT_STATUS_STORED);
	test_load(&s.bed, &t[2], KVT_STATUS_LOADED);
	for (int i = 0; i < 3; i++)
		test_transfer_fini(&t[i]);
	scene_close(&s);
}

static void memory_that_the_cpu_reaches_is_used_where_it_lies(void **state)
{
	struct scene s;
	struct test_transfer t;

	(void)state;
	scene_init(&s, true, NULL);
	scene_open(&s);
	test_transfer_init(&t, 1, &page, 1, 5);
	fake_gpu_add_host_memory(s.gpu, t.memory, t.memory_bytes);
	unsigned copies = fake_gpu_copies(s.gpu);
	test_store(&s.bed, &t, KVT_STATUS_STORED);
	test_load(&s.bed, &t, KVT_STATUS_LOADED);
	assert_int_equal(fake_gpu_copies(s.gpu), copies);
	test_transfer_fini(&t);
	scene_close(&s);
}

static void a_bad_pointer_fails_its_key_alone(void **state)
{
	static const struct test_group three = {3, 0, 1, {4096}};
	struct scene s;
	struct test_transfer t;

	(void)state;
	scene_init(&s, true, NULL);
	scene_open(&s);
	place(&s, &t, 1, &three, 1, 5);
	test_transfer_fill(&t);
	t.ptrs[1] = fake_gpu_ptr(s.gpu, MEMORY - 10);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
	struct kvt_result *result = test_take(s.bed.worker, 1);
	assert_int_equal(result->key_status[0], KVT_STATUS_STORED);
	assert_int_equal(result->key_status[1], KVT_STATUS_FAILED);
	assert_int_equal(result->key_error[1], KVT_EFAULT);
	assert_int_equal(result->key_status[2], KVT_STATUS_STORED);
	assert_non_null(strstr(result->detail, "0x"));
	kvt_result_release(result);
	test_transfer_fini(&t);
	scene_close(&s);
}

/* ---- No thread waits for the device ---- */

static void lanes_go_on_while_copies_wait(void **state)
{
	struct scene s;
	struct test_transfer out, in;
	struct kvt_submit_options options = KVT_INIT(options);

	(void)state;
	scene_init(&s, true, NULL);
	s.bed.worker_options.lanes = 1;
	scene_open(&s);
	place(&s, &out, 1, &page, 1, 5);
	place(&s, &in, 1, &page, 1, 999);
	test_set_geometry(&s.bed, &out);
	test_transfer_fill(&out);
	test_transfer_poison(&in);
	fake_gpu_hold(s.gpu);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &out.transfer, NULL));
	assert_ok(kvt_worker_submit_load(s.bed.worker, 2, &in.transfer, NULL));
	assert_true(fake_gpu_await_queued(s.gpu, 2));
	/* The only lane answers while both copies are stuck. */
	test_lookup(&s.bed, in.keys, 1, KVT_STATUS_HIT);
	test_lookup(&s.bed, out.keys, 1, KVT_STATUS_PENDING);
	assert_null(test_take_now(s.bed.worker, 1));
	assert_null(test_take_now(s.bed.worker, 2));
	assert_int_equal(in.copies[0].at[0], 0xEE);
	fake_gpu_release(s.gpu);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	assert_result(KVT_STATUS_LOADED, test_take(s.bed.worker, 2));
	test_transfer_check(&in);
	test_transfer_fini(&out);
	test_transfer_fini(&in);
	scene_close(&s);
}

static void completions_come_only_when_the_memory_is_quiet(void **state)
{
	static const struct test_group many = {12, 0, 2, {20000, 30000}};
	struct scene s;
	struct test_transfer t;

	(void)state;
	scene_init(&s, true, NULL);
	scene_open(&s);
	place(&s, &t, 2, &many, 1, 5);
	for (int load = 0; load < 2; load++) {
		if (load)
			test_transfer_poison(&t);
		else
			test_transfer_fill(&t);
		fake_gpu_hold(s.gpu);
		if (load)
			assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		/* One copy after the other. */
		struct kvt_result *result;
		while (!(result = test_take_now(s.bed.worker, 1)))
			fake_gpu_step(s.gpu, 1);
		assert_false(touched(&s, &t));
		assert_result(load ? KVT_STATUS_LOADED : KVT_STATUS_STORED, result);
		test_transfer_check(&t);
		fake_gpu_release(s.gpu);
	}
	test_transfer_fini(&t);
	scene_close(&s);
}

static void staging_is_never_exceeded(void **state)
{
	static const struct test_group many = {60, 0, 1, {60000}};
	struct scene s;
	struct test_transfer t;

	(void)state;
	/* One buffer is enough to make progress; two and more keep one for loads. */
	for (uint64_t buffers = 1; buffers <= 4; buffers++) {
		scene_init(&s, true, NULL);
		s.bed.worker_options.staging_bytes = buffers * (64 + 68) * 1024;
		scene_open(&s);
		place(&s, &t, 1, &many, 1, 5);
		test_store(&s.bed, &t, KVT_STATUS_STORED);
		test_load(&s.bed, &t, KVT_STATUS_LOADED);
		struct kvt_stats stats = test_stats(s.bed.worker);
		assert_true(stats.staging_bytes <= s.bed.worker_options.staging_bytes);
		assert_true(stats.staging_peak_bytes <= stats.staging_bytes);
		assert_true(stats.staging_peak_bytes > 0);
		test_transfer_fini(&t);
		scene_close(&s);
	}
}

static void waiting_for_staging_ends_with_cancel_and_deadline(void **state)
{
	/* One part: more than half of the only buffer. */
	static const struct test_group large = {1, 0, 1, {64 << 10}};
	struct scene s;
	struct test_transfer first, second, third;
	struct kvt_submit_options soon = KVT_INIT(soon);

	(void)state;
	scene_init(&s, true, NULL);
	s.bed.worker_options.staging_bytes = (64 + 68) * 1024;
	scene_open(&s);
	place(&s, &first, 1, &large, 1, 5);
	place(&s, &second, 1, &large, 1, 6);
	place(&s, &third, 1, &large, 1, 7);
	test_transfer_fill(&first);
	test_transfer_fill(&second);
	test_transfer_fill(&third);
	fake_gpu_hold(s.gpu);
	assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &first.transfer, NULL));
	assert_true(fake_gpu_await_queued(s.gpu, 1));
	soon.timeout_ms = 10;
	assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &second.transfer, NULL));
	assert_ok(kvt_worker_submit_store(s.bed.worker, 3, &third.transfer, &soon));
	while (test_stats(s.bed.worker).staging_waiters == 0)
		;
	assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, test_take(s.bed.worker, 3));
	assert_ok(kvt_worker_cancel(s.bed.worker, 2));
	assert_result_error(KVT_STATUS_CANCELED, KVT_ECANCELED, test_take(s.bed.worker, 2));
	assert_false(touched(&s, &second));
	fake_gpu_release(s.gpu);
	assert_result(KVT_STATUS_STORED, test_take(s.bed.worker, 1));
	test_transfer_fini(&first);
	test_transfer_fini(&second);
	test_transfer_fini(&third);
	scene_close(&s);
}

static void a_copy_in_flight_is_waited_for_after_cancel(void **state)
{
	struct scene s;
	struct test_transfer t;

	(void)state;
	for (int load = 0; load < 2; load++) {
		scene_init(&s, true, NULL);
		scene_open(&s);
		place(&s, &t, 1, &page, 1, load ? 999 : 5);
		fake_gpu_hold(s.gpu);
		if (load)
			assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer, NULL));
		else
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, NULL));
		assert_true(fake_gpu_await_queued(s.gpu, 1));
		assert_ok(kvt_worker_cancel(s.bed.worker, 1));
		uint64_t id = 1;
		assert_returns(KVT_ETIMEDOUT, kvt_worker_wait(s.bed.worker, &id, 1, 1, NULL));
		assert_true(touched(&s, &t));
		fake_gpu_release(s.gpu);
		struct kvt_result *result = test_take(s.bed.worker, 1);
		assert_false(touched(&s, &t));
		assert_true(result->status == KVT_STATUS_CANCELED ||
			    (load && result->status == KVT_STATUS_LOADED));
		kvt_result_release(result);
		test_transfer_fini(&t);
		scene_close(&s);
	}
}

/* ---- Events ---- */

static void stores_read_and_loads_write_only_after_their_event(void **state)
{
	(void)state;
	for (int stream_order = 0; stream_order < 2; stream_order++)
		for (int load = 0; load < 2; load++) {
			static const struct test_group many = {12, 0, 2, {20000, 30000}};
			struct scene s;
			struct test_transfer t;
			struct kvt_submit_options options = KVT_INIT(options);
			scene_init(&s, stream_order, NULL);
			scene_open(&s);
			struct fake_event *event = fake_event_create(s.gpu);
			place(&s, &t, 2, &many, 1, 5);
			if (load)
				test_store(&s.bed, &t, KVT_STATUS_STORED);
			options.ready.kind = KVT_READY_EVENT;
			options.ready.handle = event;
			test_transfer_poison(&t);
			if (load)
				assert_ok(kvt_worker_submit_load(s.bed.worker, 1, &t.transfer,
								 &options));
			else
				assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer,
								  &options));
			while (fake_gpu_orders(s.gpu) == 0)
				;
			assert_null(test_take_now(s.bed.worker, 1));
			for (size_t i = 0; i < t.memory_bytes; i++)
				assert_int_equal(t.memory[i], 0xEE);
			/* The kernel that uses the memory ends only now. */
			if (!load)
				test_transfer_fill(&t);
			fake_event_signal(event);
			assert_result(load ? KVT_STATUS_LOADED : KVT_STATUS_STORED,
				      test_take(s.bed.worker, 1));
			if (!load)
				test_load(&s.bed, &t, KVT_STATUS_LOADED);
			test_transfer_check(&t);
			fake_event_destroy(event);
			test_transfer_fini(&t);
			scene_close(&s);
		}
}

static void an_event_of_the_wrong_kind_fails_the_job(void **state)
{
	(void)state;
	for (int stream_order = 0; stream_order < 2; stream_order++) {
		struct scene s;
		struct test_transfer t;
		struct kvt_submit_options options = KVT_INIT(options);
		uint64_t no_event[4] = {0};
		scene_init(&s, stream_order, NULL);
		scene_open(&s);
		place(&s, &t, 1, &page, 1, 5);
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = no_event;
		unsigned puts = fake_calls(s.fake, KVT_IO_PUT);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
		assert_result_error(KVT_STATUS_FAILED, KVT_EINVAL, test_take(s.bed.worker, 1));
		assert_int_equal(fake_calls(s.fake, KVT_IO_PUT), puts);
		test_transfer_fini(&t);
		scene_close(&s);
	}
}

static void a_job_that_waits_for_its_event_can_be_canceled_and_expires(void **state)
{
	(void)state;
	for (int expires = 0; expires < 2; expires++) {
		struct scene s;
		struct test_transfer t;
		struct kvt_submit_options options = KVT_INIT(options);
		scene_init(&s, false, NULL);
		scene_open(&s);
		struct fake_event *event = fake_event_create(s.gpu);
		place(&s, &t, 1, &page, 1, 5);
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = event;
		options.timeout_ms = expires ? 10 : 0;
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
		while (fake_gpu_orders(s.gpu) == 0)
			;
		if (!expires)
			assert_ok(kvt_worker_cancel(s.bed.worker, 1));
		assert_result_error(expires ? KVT_STATUS_FAILED : KVT_STATUS_CANCELED,
				    expires ? KVT_ETIMEDOUT : KVT_ECANCELED,
				    test_take(s.bed.worker, 1));
		assert_int_equal(fake_gpu_outstanding(s.gpu), 0);
		assert_int_equal(fake_gpu_cancels(s.gpu), 1);
		fake_event_destroy(event);
		test_transfer_fini(&t);
		scene_close(&s);
	}
}

static void plain_memory_waits_for_descriptors_and_events(void **state)
{
	struct fake_store *fake = fake_store_create(NULL);
	struct test_bed bed;
	struct test_transfer t;
	uint64_t id = 1;

	(void)state;
	test_bed_init(&bed);
	test_bed_open(&bed, fake_store_uri(fake));
	for (int kind = 0; kind < 2; kind++)
		for (int early = 0; early < 2; early++) {
			struct kvt_submit_options options = KVT_INIT(options);
			struct kvt_event *event;
			int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
			uint64_t one = 1;
			assert_true(fd >= 0);
			assert_ok(kvt_event_create(&event));
			test_transfer_init(&t, 1, &page, 1, id);
			options.ready.kind = kind ? KVT_READY_FD : KVT_READY_EVENT;
			options.ready.fd = fd;
			options.ready.handle = event;
			if (early) {
				test_transfer_fill(&t);
				assert_int_equal(write(fd, &one, 8), 8);
				kvt_event_signal(event);
			}
			assert_ok(kvt_worker_submit_store(bed.worker, id, &t.transfer, &options));
			if (!early) {
				assert_returns(KVT_ETIMEDOUT,
					       kvt_worker_wait(bed.worker, &id, 1, 1, NULL));
				test_transfer_fill(&t);
				assert_int_equal(write(fd, &one, 8), 8);
				kvt_event_signal(event);
			}
			assert_result(KVT_STATUS_STORED, test_take(bed.worker, id));
			/* The descriptor was not read. */
			assert_int_equal(read(fd, &one, 8), 8);
			bed.next_id = 100 + id;
			test_load(&bed, &t, KVT_STATUS_LOADED);
			kvt_event_destroy(event);
			close(fd);
			test_transfer_fini(&t);
			id++;
		}
	test_bed_close(&bed);
	assert_null(fake_violation(fake));
	fake_store_destroy(fake);
}

/* ---- Failures ---- */

static void every_failing_copy_fails_its_key_and_leaves_the_rest(void **state)
{
	static const enum fake_gpu_fault faults[] = {FAKE_GPU_COPY_CALL, FAKE_GPU_COPY,
						     FAKE_GPU_CHECK, FAKE_GPU_ORDER};
	static const struct test_group many = {4, 0, 2, {40000, 50000}};

	(void)state;
	for (size_t f = 0; f < TEST_COUNT(faults); f++)
		for (unsigned nth = 1;; nth++) {
			struct scene s;
			struct test_transfer t;
			struct kvt_submit_options options = KVT_INIT(options);
			scene_init(&s, true, NULL);
			scene_open(&s);
			struct fake_event *event = fake_event_create(s.gpu);
			fake_event_signal(event);
			options.ready.kind = KVT_READY_EVENT;
			options.ready.handle = event;
			place(&s, &t, 2, &many, 1, 5);
			test_transfer_fill(&t);
			fake_gpu_fail(s.gpu, faults[f], nth, 1, KVT_EDEVICE);
			assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
			struct kvt_result *result = test_take(s.bed.worker, 1);
			assert_false(touched(&s, &t));
			unsigned bad = 0;
			for (uint64_t k = 0; k < result->key_count; k++) {
				if (result->key_status[k] == KVT_STATUS_STORED)
					continue;
				assert_int_equal(result->key_status[k], KVT_STATUS_FAILED);
				assert_int_equal(result->key_error[k], KVT_EDEVICE);
				bad++;
			}
			unsigned failed = fake_gpu_faults(s.gpu);
			assert_int_equal(bad, failed);
			kvt_result_release(result);
			fake_gpu_fail(s.gpu, faults[f], 0, 0, 0);
			/* Nothing half written is there: what failed is stored now. */
			assert_ok(kvt_worker_submit_store(s.bed.worker, 2, &t.transfer, NULL));
			kvt_result_release(test_take(s.bed.worker, 2));

			test_transfer_poison(&t);
			fake_gpu_fail(s.gpu, faults[f], nth, 1, KVT_EDEVICE);
			assert_ok(kvt_worker_submit_load(s.bed.worker, 3, &t.transfer, &options));
			result = test_take(s.bed.worker, 3);
			assert_false(touched(&s, &t));
			bad = 0;
			for (uint64_t k = 0; k < result->key_count; k++) {
				if (result->key_status[k] == KVT_STATUS_LOADED) {
					assert_true(test_transfer_key_ok(&t, k));
					continue;
				}
				assert_int_equal(result->key_status[k], KVT_STATUS_FAILED);
				assert_int_equal(result->key_error[k], KVT_EDEVICE);
				bad++;
			}
			failed += fake_gpu_faults(s.gpu);
			assert_int_equal(bad, fake_gpu_faults(s.gpu));
			kvt_result_release(result);
			fake_gpu_fail(s.gpu, faults[f], 0, 0, 0);
			/* A device that failed is no reason to doubt the object. */
			test_load(&s.bed, &t, KVT_STATUS_LOADED);
			fake_event_destroy(event);
			test_transfer_fini(&t);
			scene_close(&s);
			if (!failed)
				break;
			assert_true(nth < 200);
		}
}

static void a_device_that_cannot_start_fails_create(void **state)
{
	static const enum fake_gpu_fault faults[] = {FAKE_GPU_LANE_OPEN, FAKE_GPU_STAGING};
	struct scene s;

	(void)state;
	scene_init(&s, true, NULL);
	assert_ok(fake_gpu_open(s.gpu, NULL, &s.bed.device));
	test_bed_open_store(&s.bed, fake_store_uri(s.fake));
	for (size_t f = 0; f < TEST_COUNT(faults); f++)
		for (unsigned nth = 1; nth <= 2; nth++) {
			struct kvt_worker *worker = (void *)1;
			if (faults[f] == FAKE_GPU_STAGING && nth > 1)
				continue;
			fake_gpu_fail(s.gpu, faults[f], nth, 1, KVT_EDEVICE);
			assert_returns(KVT_EDEVICE,
				       kvt_worker_create(s.bed.store, s.bed.device,
							 &s.bed.worker_options, &worker));
			assert_null(worker);
			assert_int_equal(fake_gpu_lanes(s.gpu), 0);
			assert_int_equal(fake_sessions(s.fake), 0);
			fake_gpu_fail(s.gpu, faults[f], 0, 0, 0);
		}
	test_bed_open_worker(&s.bed);
	assert_fails(KVT_EBUSY, "", kvt_device_close(s.bed.device));
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_shape_comes_back),
		cmocka_unit_test(a_merge_on_the_device_keeps_both_halves),
		cmocka_unit_test(memory_that_the_cpu_reaches_is_used_where_it_lies),
		cmocka_unit_test(a_bad_pointer_fails_its_key_alone),
		cmocka_unit_test(lanes_go_on_while_copies_wait),
		cmocka_unit_test(completions_come_only_when_the_memory_is_quiet),
		cmocka_unit_test(staging_is_never_exceeded),
		cmocka_unit_test(waiting_for_staging_ends_with_cancel_and_deadline),
		cmocka_unit_test(a_copy_in_flight_is_waited_for_after_cancel),
		cmocka_unit_test(stores_read_and_loads_write_only_after_their_event),
		cmocka_unit_test(an_event_of_the_wrong_kind_fails_the_job),
		cmocka_unit_test(a_job_that_waits_for_its_event_can_be_canceled_and_expires),
		cmocka_unit_test(plain_memory_waits_for_descriptors_and_events),
		cmocka_unit_test(every_failing_copy_fails_its_key_and_leaves_the_rest),
		cmocka_unit_test(a_device_that_cannot_start_fails_create),
	};
	return cmocka_run_group_tests_name("worker_device", tests, NULL, NULL);
}
