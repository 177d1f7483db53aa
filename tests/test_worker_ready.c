/* SPDX-License-Identifier: Apache-2.0 */
/* Ready events: memory is not touched before they have happened, on the fake device and on plain
 * memory. */
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gpu_scene.h"

static const struct test_group page = {1, 0, 1, {4096}};

static void stores_read_and_loads_write_only_after_their_event(void **state)
{
	(void)state;
	for (int stream_order = 0; stream_order < 2; stream_order++)
		for (int load = 0; load < 2; load++) {
			static const struct test_group many = {12, 0, 2, {20000, 30000}};
			struct gpu_scene s;
			struct test_transfer t;
			struct kvt_submit_options options = KVT_INIT(options);
			gpu_scene_init(&s, stream_order, NULL);
			gpu_scene_open(&s);
			struct fake_event *event = fake_event_create(s.gpu);
			gpu_scene_place(&s, &t, 2, &many, 1, 5);
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
				(void)sched_yield();
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
			gpu_scene_close(&s);
		}
}

static void an_event_of_the_wrong_kind_fails_the_job(void **state)
{
	(void)state;
	for (int stream_order = 0; stream_order < 2; stream_order++) {
		struct gpu_scene s;
		struct test_transfer t;
		struct kvt_submit_options options = KVT_INIT(options);
		uint64_t no_event[4] = {0};
		gpu_scene_init(&s, stream_order, NULL);
		gpu_scene_open(&s);
		gpu_scene_place(&s, &t, 1, &page, 1, 5);
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = no_event;
		unsigned puts = fake_calls(s.fake, KVT_IO_PUT);
		assert_ok(kvt_worker_submit_store(s.bed.worker, 1, &t.transfer, &options));
		assert_result_error(KVT_STATUS_FAILED, KVT_EINVAL, test_take(s.bed.worker, 1));
		assert_int_equal(fake_calls(s.fake, KVT_IO_PUT), puts);
		test_transfer_fini(&t);
		gpu_scene_close(&s);
	}
}

static void a_job_that_waits_for_its_event_can_be_canceled_and_expires(void **state)
{
	(void)state;
	for (int expires = 0; expires < 2; expires++) {
		struct gpu_scene s;
		struct test_transfer t;
		struct kvt_submit_options options = KVT_INIT(options);
		struct kvt_result *early;
		uint64_t id = 1;
		gpu_scene_init(&s, false, NULL);
		gpu_scene_open(&s);
		struct fake_event *event = fake_event_create(s.gpu);
		gpu_scene_place(&s, &t, 1, &page, 1, 5);
		options.ready.kind = KVT_READY_EVENT;
		options.ready.handle = event;
		options.timeout_ms = expires ? 10 : 0;
		assert_ok(kvt_worker_submit_store(s.bed.worker, id, &t.transfer, &options));
		/* Longer each time, until it has begun to wait before its deadline. */
		while (fake_gpu_orders(s.gpu) == 0) {
			early = expires ? test_take_now(s.bed.worker, id) : NULL;
			if (!early)
				continue;
			assert_result_error(KVT_STATUS_FAILED, KVT_ETIMEDOUT, early);
			options.timeout_ms *= 2;
			assert_ok(
				kvt_worker_submit_store(s.bed.worker, ++id, &t.transfer, &options));
		}
		if (!expires)
			assert_ok(kvt_worker_cancel(s.bed.worker, id));
		assert_result_error(expires ? KVT_STATUS_FAILED : KVT_STATUS_CANCELED,
				    expires ? KVT_ETIMEDOUT : KVT_ECANCELED,
				    test_take(s.bed.worker, id));
		assert_int_equal(fake_gpu_outstanding(s.gpu), 0);
		assert_int_equal(fake_gpu_cancels(s.gpu), fake_gpu_orders(s.gpu));
		fake_event_destroy(event);
		test_transfer_fini(&t);
		gpu_scene_close(&s);
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
				/* The thread sanitizer does not see the order that a descriptor
				 * makes, only that of a lock. */
				(void)test_stats(bed.worker);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stores_read_and_loads_write_only_after_their_event),
		cmocka_unit_test(an_event_of_the_wrong_kind_fails_the_job),
		cmocka_unit_test(a_job_that_waits_for_its_event_can_be_canceled_and_expires),
		cmocka_unit_test(plain_memory_waits_for_descriptors_and_events),
	};
	return cmocka_run_group_tests_name("worker_ready", tests, NULL, NULL);
}
