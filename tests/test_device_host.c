/* SPDX-License-Identifier: Apache-2.0 */
/* Plain memory as a device: opening, copies, and orderings after descriptors and events. Long, and
 * one file: one device, whose lanes and events share their scenes. */
#include "support.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device.h"

struct scene {
	struct kvt_device *device;
	const struct kvt_device_ops *ops;
};

/* A lane with a count of its notices that can be waited for. */
struct lane {
	void *lane;
	const struct kvt_device_ops *ops;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	unsigned notices;
	struct test_gate *gate; /* notices pass it, when set */
};

/* One ordering. */
struct order {
	struct kvt_device_io io; /* first */
	unsigned completed;
	char detail[128];
	_Alignas(16) uint8_t private_data[256];
};

static void notify(void *arg)
{
	struct lane *lane = arg;

	if (lane->gate != NULL)
		test_gate_pass(lane->gate);
	pthread_mutex_lock(&lane->lock);
	lane->notices++;
	pthread_cond_signal(&lane->changed);
	pthread_mutex_unlock(&lane->lock);
}

static void scene_open(struct scene *s)
{
	assert_ok(kvt_device_open(NULL, &s->device));
	s->ops = &s->device->ops;
	assert_true(s->ops->io_private_bytes <= sizeof(((struct order *)0)->private_data));
}

static void scene_close(struct scene *s)
{
	assert_ok(kvt_device_close(s->device));
}

static void lane_open(struct scene *s, struct lane *lane)
{
	memset(lane, 0, sizeof(*lane));
	pthread_mutex_init(&lane->lock, NULL);
	pthread_cond_init(&lane->changed, NULL);
	lane->ops = s->ops;
	assert_ok(s->ops->lane_open(s->device->device, notify, lane, &lane->lane));
}

static void lane_close(struct lane *lane)
{
	lane->ops->lane_close(lane->lane);
	pthread_cond_destroy(&lane->changed);
	pthread_mutex_destroy(&lane->lock);
}

static void await_notices(struct lane *lane, unsigned count)
{
	pthread_mutex_lock(&lane->lock);
	while (lane->notices < count)
		pthread_cond_wait(&lane->changed, &lane->lock);
	pthread_mutex_unlock(&lane->lock);
}

static void on_complete(struct kvt_device_io *io)
{
	((struct order *)io)->completed++;
}

static int order(struct lane *lane, struct order *o, uint32_t kind, int fd, void *handle)
{
	struct kvt_ready ready = {.kind = kind, .fd = fd, .handle = handle};

	memset(o, 0, sizeof(*o));
	memset(o->private_data, 0xEE, sizeof(o->private_data));
	o->io.complete = on_complete;
	o->io.detail_buffer = o->detail;
	o->io.detail_bytes = sizeof(o->detail);
	o->io.private_data = o->private_data;
	return lane->ops->order(lane->lane, &ready, 1, &o->io);
}

static int new_eventfd(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	assert_true(fd >= 0);
	return fd;
}

static void signal_fd(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) != sizeof(one))
		fail_msg("eventfd: cannot be written");
}

static unsigned count_entries(const char *path)
{
	DIR *dir = opendir(path);
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

/* Threads of the device, which have named themselves. */
static unsigned count_ready_threads(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned count = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir)) != NULL) {
		char *path = test_format("/proc/self/task/%s/comm", entry->d_name);
		FILE *file = fopen(path, "re");
		char name[32] = "";

		if (file != NULL) {
			if (fgets(name, sizeof(name), file) == NULL)
				name[0] = '\0';
			fclose(file);
		}
		count += strcmp(name, "kvt-ready\n") == 0;
		free(path);
	}
	closedir(dir);
	return count;
}

/* ---- Opening ---- */

static void the_host_device_opens_by_default_and_by_name(void **state)
{
	struct kvt_device_options options = KVT_INIT(options);
	struct kvt_device *device;

	(void)state;
	assert_ok(kvt_device_open(NULL, &device));
	assert_ok(kvt_device_close(device));
	assert_ok(kvt_device_open(&options, &device));
	assert_ok(kvt_device_close(device));
	options.name = "host";
	assert_ok(kvt_device_open(&options, &device));
	assert_true(device->ops.capabilities & KVT_DEVICE_HOST_MEMORY);
	assert_false(device->ops.capabilities & KVT_DEVICE_STREAM_ORDER);
	assert_ok(kvt_device_close(device));
	assert_ok(kvt_device_close(NULL));
}

static void never_free(void *context, void *memory)
{
	(void)context;
	(void)memory;
}

static void bad_arguments_of_opening_are_refused_by_name(void **state)
{
	struct {
		struct kvt_device_options options;
		char more[8];
	} larger = {.options = {.struct_size = sizeof(larger)}};
	struct kvt_device_options options = KVT_INIT(options);
	struct kvt_device *device = (void *)1;

	(void)state;
	assert_fails(KVT_EINVAL, "devicep", kvt_device_open(NULL, NULL));
	options.name = "gpu9";
	assert_fails(KVT_EINVAL, "gpu9", kvt_device_open(&options, &device));
	assert_null(device);
	assert_non_null(strstr(kvt_error_detail(), "host"));
	options.name = NULL;
	options.ordinal = 3;
	assert_fails(KVT_EINVAL, "ordinal: 3", kvt_device_open(&options, &device));
	options.ordinal = 0;
	options.struct_size = 0;
	assert_fails(KVT_EINVAL, "struct_size", kvt_device_open(&options, &device));
	assert_ok(kvt_device_open(&larger.options, &device));
	assert_ok(kvt_device_close(device));
	larger.more[5] = 1;
	assert_fails(KVT_EINVAL, "zero", kvt_device_open(&larger.options, &device));
	options = (struct kvt_device_options)KVT_INIT(options);
	options.hooks.allocator.free = never_free;
	assert_fails(KVT_EINVAL, "alloc", kvt_device_open(&options, &device));
}

static void every_allocation_that_fails_leaves_nothing_behind(void **state)
{
	struct kvt_device_options options = KVT_INIT(options);
	struct test_allocator allocator;
	struct kvt_device *device;
	int error = KVT_ENOMEM;
	unsigned tries = 0;

	(void)state;
	test_allocator_init(&allocator);
	test_allocator_hooks(&allocator, &options.hooks.allocator);
	for (uint64_t fail_at = 1; error != 0; fail_at++, tries++) {
		void *lane = NULL;

		atomic_store(&allocator.calls, 0);
		atomic_store(&allocator.fail_at, fail_at);
		error = kvt_device_open(&options, &device);
		if (error == 0) {
			error = device->ops.lane_open(device->device, notify, NULL, &lane);
			if (error == 0)
				device->ops.lane_close(lane);
			else
				assert_null(lane);
		} else {
			assert_null(device);
		}
		assert_true(error == 0 || error == KVT_ENOMEM);
		assert_ok(kvt_device_close(device));
		assert_int_equal(atomic_load(&allocator.live_blocks), 0);
	}
	assert_int_equal(tries, 4);
}

static void a_device_in_use_is_not_closed(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s);
	atomic_store(&s.device->users, 2);
	assert_fails(KVT_EBUSY, "2 workers", kvt_device_close(s.device));
	atomic_store(&s.device->users, 0);
	scene_close(&s);
}

/* ---- Memory ---- */

static void staging_is_aligned_and_copies_move_both_ways(void **state)
{
	struct scene s;
	struct lane lane;
	uint8_t device_memory[3][1000], expected[3000];
	struct kvt_device_copy copies[3];
	struct kvt_device_io io = {.copies = copies, .copy_count = 3};
	void *staging;

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	assert_ok(s.ops->staging_alloc(s.device->device, 3 << 20, &staging));
	assert_int_equal((uintptr_t)staging % 4096, 0);
	for (int i = 0; i < 3; i++) {
		test_fill(device_memory[i], 1000, (uint64_t)i);
		memcpy(expected + 1000 * i, device_memory[i], 1000);
		copies[i].device_ptr = (uintptr_t)device_memory[i];
		copies[i].staging = (uint8_t *)staging + 1000 * i;
		copies[i].bytes = 1000;
	}
	io.direction = KVT_GATHER;
	io.result = 7;
	assert_int_equal(s.ops->copy(lane.lane, &io), KVT_DEVICE_DONE);
	assert_int_equal(io.result, 0);
	assert_memory_equal(staging, expected, 3000);
	memset(device_memory, 0, sizeof(device_memory));
	io.direction = KVT_SCATTER;
	assert_int_equal(s.ops->copy(lane.lane, &io), KVT_DEVICE_DONE);
	for (int i = 0; i < 3; i++)
		assert_memory_equal(device_memory[i], expected + 1000 * i, 1000);
	s.ops->staging_free(s.device->device, staging, 3 << 20);
	lane_close(&lane);
	scene_close(&s);
}

static void staging_beyond_the_machine_is_refused_with_the_number(void **state)
{
	struct scene s;
	void *memory = (void *)1;

	(void)state;
	scene_open(&s);
	assert_fails(KVT_ENOMEM, "4611686018427387904",
		     s.ops->staging_alloc(s.device->device, UINT64_C(1) << 62, &memory));
	assert_null(memory);
	assert_fails(KVT_EINVAL, "staging of 0",
		     s.ops->staging_alloc(s.device->device, 0, &memory));
	assert_fails(KVT_EINVAL, "18446744073709551615",
		     s.ops->staging_alloc(s.device->device, UINT64_MAX, &memory));
	scene_close(&s);
}

/* ---- Descriptors ---- */

static void what_has_happened_already_is_done_at_once_and_starts_no_thread(void **state)
{
	struct scene s;
	struct lane lane;
	struct order o;
	int fd = new_eventfd(), ends[2], file;

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	signal_fd(fd);
	assert_int_equal(order(&lane, &o, KVT_READY_FD, fd, NULL), KVT_DEVICE_DONE);
	/* Not read by the device: it stays readable. */
	assert_int_equal(order(&lane, &o, KVT_READY_FD, fd, NULL), KVT_DEVICE_DONE);
	assert_int_equal(pipe(ends), 0);
	close(ends[1]);
	assert_int_equal(order(&lane, &o, KVT_READY_FD, ends[0], NULL), KVT_DEVICE_DONE);
	file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_true(file >= 0);
	assert_int_equal(order(&lane, &o, KVT_READY_FD, file, NULL), KVT_DEVICE_DONE);
	assert_int_equal(s.ops->poll(lane.lane), 0);
	assert_int_equal(o.completed, 0);
	assert_int_equal(count_ready_threads(), 0);
	close(file);
	close(ends[0]);
	close(fd);
	lane_close(&lane);
	scene_close(&s);
}

static void a_descriptor_is_waited_for_on_one_thread_that_ends_with_the_device(void **state)
{
	struct scene s;
	struct lane lane;
	struct order orders[3];
	int fds[3];
	unsigned descriptors = count_entries("/proc/self/fd");

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	for (int i = 0; i < 3; i++) {
		fds[i] = new_eventfd();
		assert_int_equal(order(&lane, &orders[i], KVT_READY_FD, fds[i], NULL),
				 KVT_DEVICE_QUEUED);
	}
	assert_int_equal(s.ops->poll(lane.lane), 0);
	signal_fd(fds[1]);
	await_notices(&lane, 1);
	assert_int_equal(count_ready_threads(), 1);
	assert_int_equal(s.ops->poll(lane.lane), 1);
	assert_int_equal(orders[1].completed, 1);
	assert_int_equal(orders[1].io.result, 0);
	assert_int_equal(orders[0].completed + orders[2].completed, 0);
	signal_fd(fds[2]);
	signal_fd(fds[0]);
	await_notices(&lane, 3);
	assert_int_equal(s.ops->poll(lane.lane), 2);
	assert_int_equal(orders[0].completed, 1);
	assert_int_equal(orders[2].completed, 1);
	assert_int_equal(s.ops->poll(lane.lane), 0);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	lane_close(&lane);
	scene_close(&s);
	assert_int_equal(count_entries("/proc/self/fd"), descriptors);
}

static void many_orders_may_wait_for_one_descriptor(void **state)
{
	static struct order orders[200];
	struct scene s;
	struct lane lane;
	int fd = new_eventfd();

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	for (size_t i = 0; i < TEST_COUNT(orders); i++)
		assert_int_equal(order(&lane, &orders[i], KVT_READY_FD, fd, NULL),
				 KVT_DEVICE_QUEUED);
	assert_ok(s.ops->order_cancel(lane.lane, &orders[7].io));
	signal_fd(fd);
	await_notices(&lane, TEST_COUNT(orders) - 1);
	assert_int_equal(s.ops->poll(lane.lane), TEST_COUNT(orders) - 1);
	for (size_t i = 0; i < TEST_COUNT(orders); i++)
		assert_int_equal(orders[i].completed, i != 7);
	close(fd);
	lane_close(&lane);
	scene_close(&s);
}

static void a_closed_end_counts_as_readable(void **state)
{
	struct scene s;
	struct lane lane;
	struct order o;
	int ends[2];

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(order(&lane, &o, KVT_READY_FD, ends[0], NULL), KVT_DEVICE_QUEUED);
	close(ends[1]);
	await_notices(&lane, 1);
	assert_int_equal(s.ops->poll(lane.lane), 1);
	assert_int_equal(o.io.result, 0);
	close(ends[0]);
	lane_close(&lane);
	scene_close(&s);
}

static void what_is_no_event_of_plain_memory_is_refused(void **state)
{
	static const struct {
		uint32_t kind;
		int fd;
		const char *text;
	} cases[] = {
		{KVT_READY_FD, -1, "descriptor -1"},
		{KVT_READY_FD, 987654, "descriptor 987654"},
		{KVT_READY_EVENT, 0, "NULL"},
		{KVT_READY_STREAM, 0, "kind: 3"},
		{77, 0, "kind: 77"},
	};
	struct scene s;
	struct lane lane;
	struct order o;

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	for (size_t i = 0; i < TEST_COUNT(cases); i++) {
		assert_int_equal(order(&lane, &o, cases[i].kind, cases[i].fd, NULL), KVT_EINVAL);
		assert_non_null(strstr(o.detail, cases[i].text));
		o.io.detail_buffer = NULL;
	}
	assert_int_equal(s.ops->poll(lane.lane), 0);
	lane_close(&lane);
	scene_close(&s);
}

/* The number of a descriptor that was given up comes to mean another file. */
static void a_reused_number_is_not_taken_for_the_old_descriptor(void **state)
{
	struct scene s;
	struct lane lane;
	struct order old, new;
	int fd, other, marker = new_eventfd();
	struct order mark;

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	fd = new_eventfd();
	assert_int_equal(order(&lane, &old, KVT_READY_FD, fd, NULL), KVT_DEVICE_QUEUED);
	assert_ok(s.ops->order_cancel(lane.lane, &old.io));
	other = new_eventfd();
	assert_int_equal(dup3(other, fd, O_CLOEXEC), fd);
	assert_int_equal(order(&lane, &new, KVT_READY_FD, fd, NULL), KVT_DEVICE_QUEUED);
	/* The thread looks around once, for another descriptor. */
	assert_int_equal(order(&lane, &mark, KVT_READY_FD, marker, NULL), KVT_DEVICE_QUEUED);
	signal_fd(marker);
	await_notices(&lane, 1);
	assert_int_equal(s.ops->poll(lane.lane), 1);
	assert_int_equal(mark.completed, 1);
	assert_int_equal(new.completed, 0);
	signal_fd(other);
	await_notices(&lane, 2);
	assert_int_equal(s.ops->poll(lane.lane), 1);
	assert_int_equal(new.completed, 1);
	assert_int_equal(old.completed, 0);
	close(fd);
	close(other);
	close(marker);
	lane_close(&lane);
	scene_close(&s);
}

/* Against the rules, but it must neither spin nor be forgotten. */
static void a_descriptor_that_is_closed_while_waited_for_fails_once_its_file_speaks(void **state)
{
	struct scene s;
	struct lane lane;
	struct order o;
	int fd = new_eventfd(), copy = dup(fd);

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	assert_int_equal(order(&lane, &o, KVT_READY_FD, fd, NULL), KVT_DEVICE_QUEUED);
	close(fd);
	signal_fd(copy);
	await_notices(&lane, 1);
	assert_int_equal(s.ops->poll(lane.lane), 1);
	assert_int_equal(o.io.result, KVT_EINVAL);
	assert_non_null(strstr(o.detail, "not an open descriptor"));
	close(copy);
	lane_close(&lane);
	scene_close(&s);
}

/* ---- Events ---- */

static void an_event_finishes_all_its_orders_and_stays_signalled(void **state)
{
	struct scene s;
	struct lane lanes[2];
	struct order orders[2][10], late;
	struct kvt_event *event;

	(void)state;
	assert_fails(KVT_EINVAL, "eventp", kvt_event_create(NULL));
	scene_open(&s);
	assert_ok(kvt_event_create(&event));
	for (int l = 0; l < 2; l++) {
		lane_open(&s, &lanes[l]);
		for (int i = 0; i < 10; i++)
			assert_int_equal(
				order(&lanes[l], &orders[l][i], KVT_READY_EVENT, -1, event),
				KVT_DEVICE_QUEUED);
	}
	assert_ok(s.ops->order_cancel(lanes[0].lane, &orders[0][0].io));
	assert_ok(s.ops->order_cancel(lanes[0].lane, &orders[0][9].io));
	assert_ok(s.ops->order_cancel(lanes[0].lane, &orders[0][5].io));
	kvt_event_signal(event);
	assert_int_equal(s.ops->poll(lanes[0].lane), 7);
	assert_int_equal(s.ops->poll(lanes[1].lane), 10);
	assert_int_equal(lanes[0].notices, 7);
	assert_int_equal(lanes[1].notices, 10);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(orders[0][i].completed, i != 0 && i != 5 && i != 9);
		assert_int_equal(orders[1][i].completed, 1);
	}
	assert_int_equal(order(&lanes[0], &late, KVT_READY_EVENT, -1, event), KVT_DEVICE_DONE);
	kvt_event_signal(event);
	assert_int_equal(s.ops->poll(lanes[0].lane), 0);
	kvt_event_destroy(event);
	kvt_event_signal(NULL);
	kvt_event_destroy(NULL);
	lane_close(&lanes[0]);
	lane_close(&lanes[1]);
	scene_close(&s);
}

static void a_finished_order_cannot_be_canceled_and_still_comes(void **state)
{
	struct scene s;
	struct lane lane;
	struct order by_event, by_fd;
	struct kvt_event *event;
	int fd = new_eventfd();

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	assert_ok(kvt_event_create(&event));
	assert_int_equal(order(&lane, &by_event, KVT_READY_EVENT, -1, event), KVT_DEVICE_QUEUED);
	assert_int_equal(order(&lane, &by_fd, KVT_READY_FD, fd, NULL), KVT_DEVICE_QUEUED);
	kvt_event_signal(event);
	signal_fd(fd);
	await_notices(&lane, 2);
	assert_int_equal(s.ops->order_cancel(lane.lane, &by_event.io), KVT_EBUSY);
	assert_int_equal(s.ops->order_cancel(lane.lane, &by_fd.io), KVT_EBUSY);
	assert_int_equal(by_event.completed + by_fd.completed, 0);
	assert_int_equal(s.ops->poll(lane.lane), 2);
	assert_int_equal(by_event.completed, 1);
	assert_int_equal(by_fd.completed, 1);
	kvt_event_destroy(event);
	close(fd);
	lane_close(&lane);
	scene_close(&s);
}

static void a_canceled_order_never_completes(void **state)
{
	struct scene s;
	struct lane lane;
	struct order by_event, by_fd, mark;
	struct kvt_event *event;
	int fd = new_eventfd();

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	assert_ok(kvt_event_create(&event));
	assert_int_equal(order(&lane, &by_event, KVT_READY_EVENT, -1, event), KVT_DEVICE_QUEUED);
	assert_int_equal(order(&lane, &by_fd, KVT_READY_FD, fd, NULL), KVT_DEVICE_QUEUED);
	assert_ok(s.ops->order_cancel(lane.lane, &by_event.io));
	assert_ok(s.ops->order_cancel(lane.lane, &by_fd.io));
	kvt_event_signal(event);
	signal_fd(fd);
	/* The same descriptor again: now it is readable. */
	assert_int_equal(order(&lane, &mark, KVT_READY_FD, fd, NULL), KVT_DEVICE_DONE);
	assert_int_equal(s.ops->poll(lane.lane), 0);
	assert_int_equal(lane.notices, 0);
	kvt_event_destroy(event);
	close(fd);
	lane_close(&lane);
	scene_close(&s);
	assert_int_equal(by_event.completed + by_fd.completed, 0);
}

/* ---- Threads ---- */

static void *signal_event_main(void *arg)
{
	kvt_event_signal(arg);
	return NULL;
}

struct closer {
	struct lane *lane;
	atomic_bool closed;
};

static void *close_main(void *arg)
{
	struct closer *closer = arg;

	closer->lane->ops->lane_close(closer->lane->lane);
	atomic_store(&closer->closed, true);
	return NULL;
}

/* Once its completion has been delivered the lane may close, while the notice is on its way. */
static void a_lane_outlives_the_notices_that_are_on_their_way(void **state)
{
	struct scene s;
	struct lane lane;
	struct order o;
	struct kvt_event *event;
	struct test_gate gate;
	struct closer closer = {.lane = &lane};
	pthread_t signaller, closing;

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	test_gate_init(&gate, false);
	lane.gate = &gate;
	assert_ok(kvt_event_create(&event));
	assert_int_equal(order(&lane, &o, KVT_READY_EVENT, -1, event), KVT_DEVICE_QUEUED);
	assert_int_equal(pthread_create(&signaller, NULL, signal_event_main, event), 0);
	assert_true(test_gate_await(&gate, 1));
	assert_int_equal(s.ops->poll(lane.lane), 1);
	kvt_event_destroy(event); /* its job has completed */
	assert_int_equal(pthread_create(&closing, NULL, close_main, &closer), 0);
	for (int i = 0; i < 1000; i++)
		sched_yield();
	assert_false(atomic_load(&closer.closed));
	test_gate_open(&gate);
	assert_int_equal(pthread_join(closing, NULL), 0);
	assert_int_equal(pthread_join(signaller, NULL), 0);
	test_gate_fini(&gate);
	scene_close(&s);
}

#define RACE_LANES  4
#define RACE_ROUNDS 400

struct racer {
	struct scene *scene;
	uint32_t number;
	pthread_t lane_thread, signal_thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct kvt_event *event; /* to be signalled, with fd */
	int fd;
	bool quit;
	unsigned twice, canceled, completed, failed;
};

static void *racing_signaller(void *arg)
{
	struct racer *r = arg;

	pthread_mutex_lock(&r->lock);
	for (;;) {
		while (r->event == NULL && !r->quit)
			pthread_cond_wait(&r->changed, &r->lock);
		if (r->event == NULL)
			break;
		struct kvt_event *event = r->event;
		int fd = r->fd;
		uint64_t one = 1;

		r->event = NULL;
		pthread_mutex_unlock(&r->lock);
		if (write(fd, &one, sizeof(one)) != sizeof(one))
			abort();
		kvt_event_signal(event);
		pthread_mutex_lock(&r->lock);
		r->fd = -1;
		pthread_cond_signal(&r->changed);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void race_round(struct racer *r, struct lane *lane, struct test_random *random)
{
	struct order orders[4];
	struct kvt_event *event;
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	unsigned open = 0;
	bool canceled[4] = {false}, queued[4];

	if (fd < 0 || kvt_event_create(&event) != 0) {
		r->failed++;
		return;
	}
	for (int i = 0; i < 4; i++) {
		int answer = i % 2 ? order(lane, &orders[i], KVT_READY_FD, fd, NULL)
				   : order(lane, &orders[i], KVT_READY_EVENT, -1, event);

		queued[i] = answer == KVT_DEVICE_QUEUED;
		r->failed += answer < 0;
		open += queued[i];
		if (i == 1) {
			pthread_mutex_lock(&r->lock);
			r->event = event;
			r->fd = fd;
			pthread_cond_signal(&r->changed);
			pthread_mutex_unlock(&r->lock);
		}
	}
	for (int i = 0; i < 4; i++) {
		if (!queued[i] || test_random_below(random, 2))
			continue;
		if (lane->ops->order_cancel(lane->lane, &orders[i].io) == 0) {
			canceled[i] = true;
			r->canceled++;
			open--;
		}
	}
	while (open > 0) {
		open -= (unsigned)lane->ops->poll(lane->lane);
		sched_yield();
	}
	/* The signaller is done with both before they go. */
	pthread_mutex_lock(&r->lock);
	while (r->fd != -1)
		pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
	for (int i = 0; i < 4; i++) {
		r->completed += orders[i].completed;
		if (orders[i].completed != (queued[i] && !canceled[i]))
			r->twice++;
	}
	kvt_event_destroy(event);
	close(fd);
}

static void *racing_lane(void *arg)
{
	struct racer *r = arg;
	struct test_random random = {r->number + 77};
	struct lane lane = {.ops = r->scene->ops};

	pthread_mutex_init(&lane.lock, NULL);
	pthread_cond_init(&lane.changed, NULL);
	if (lane.ops->lane_open(r->scene->device->device, notify, &lane, &lane.lane) != 0) {
		r->failed++;
		return NULL;
	}
	for (int round = 0; round < RACE_ROUNDS; round++)
		race_round(r, &lane, &random);
	lane_close(&lane);
	pthread_mutex_lock(&r->lock);
	r->quit = true;
	pthread_cond_signal(&r->changed);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

static void orders_of_many_lanes_complete_once_or_are_canceled(void **state)
{
	struct racer racers[RACE_LANES];
	struct scene s;
	unsigned completed = 0;

	(void)state;
	scene_open(&s);
	for (uint32_t i = 0; i < RACE_LANES; i++) {
		struct racer *r = &racers[i];

		memset(r, 0, sizeof(*r));
		r->scene = &s;
		r->number = i;
		r->fd = -1;
		pthread_mutex_init(&r->lock, NULL);
		pthread_cond_init(&r->changed, NULL);
		assert_int_equal(pthread_create(&r->signal_thread, NULL, racing_signaller, r), 0);
		assert_int_equal(pthread_create(&r->lane_thread, NULL, racing_lane, r), 0);
	}
	for (uint32_t i = 0; i < RACE_LANES; i++) {
		struct racer *r = &racers[i];

		assert_int_equal(pthread_join(r->lane_thread, NULL), 0);
		assert_int_equal(pthread_join(r->signal_thread, NULL), 0);
		assert_int_equal(r->failed, 0);
		assert_int_equal(r->twice, 0);
		completed += r->completed;
		pthread_cond_destroy(&r->changed);
		pthread_mutex_destroy(&r->lock);
	}
	assert_true(completed > 0);
	scene_close(&s);
}

/* ---- Fork ---- */

static void a_forked_child_closes_descriptors_and_memory_only(void **state)
{
	struct scene s;
	struct lane lane;
	struct order o;
	int fd = new_eventfd(), status;
	unsigned descriptors = count_entries("/proc/self/fd");
	pid_t child;

	(void)state;
	scene_open(&s);
	lane_open(&s, &lane);
	assert_int_equal(order(&lane, &o, KVT_READY_FD, fd, NULL), KVT_DEVICE_QUEUED);
	assert_true(count_entries("/proc/self/fd") > descriptors);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int wrong = kvt_device_close(s.device) != 0;

		if (count_entries("/proc/self/fd") != descriptors)
			wrong |= 2;
		_exit(wrong);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* The parent's goes on. */
	signal_fd(fd);
	await_notices(&lane, 1);
	assert_int_equal(s.ops->poll(lane.lane), 1);
	close(fd);
	lane_close(&lane);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_host_device_opens_by_default_and_by_name),
		cmocka_unit_test(bad_arguments_of_opening_are_refused_by_name),
		cmocka_unit_test(every_allocation_that_fails_leaves_nothing_behind),
		cmocka_unit_test(a_device_in_use_is_not_closed),
		cmocka_unit_test(staging_is_aligned_and_copies_move_both_ways),
		cmocka_unit_test(staging_beyond_the_machine_is_refused_with_the_number),
		cmocka_unit_test(what_has_happened_already_is_done_at_once_and_starts_no_thread),
		cmocka_unit_test(
			a_descriptor_is_waited_for_on_one_thread_that_ends_with_the_device),
		cmocka_unit_test(many_orders_may_wait_for_one_descriptor),
		cmocka_unit_test(a_closed_end_counts_as_readable),
		cmocka_unit_test(what_is_no_event_of_plain_memory_is_refused),
		cmocka_unit_test(a_reused_number_is_not_taken_for_the_old_descriptor),
		cmocka_unit_test(
			a_descriptor_that_is_closed_while_waited_for_fails_once_its_file_speaks),
		cmocka_unit_test(an_event_finishes_all_its_orders_and_stays_signalled),
		cmocka_unit_test(a_finished_order_cannot_be_canceled_and_still_comes),
		cmocka_unit_test(a_canceled_order_never_completes),
		cmocka_unit_test(a_lane_outlives_the_notices_that_are_on_their_way),
		cmocka_unit_test(orders_of_many_lanes_complete_once_or_are_canceled),
		cmocka_unit_test(a_forked_child_closes_descriptors_and_memory_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
