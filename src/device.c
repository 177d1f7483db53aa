/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing the memory that chunks live in. Any thread. */
#include "device.h"

int kvt_device_open(const struct kvt_device_options *options, struct kvt_device **devicep)
{
	struct kvt_device_options o;
	struct kvt__env outer = {0};
	struct kvt_device *device;
	int error;

	if (devicep == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_device_open: devicep: NULL");
	*devicep = NULL;
	kvt__fork_watch();
	error = kvt__copy_options(&o, sizeof(o), options,
				  offsetof(struct kvt_device_options, ordinal),
				  "kvt_device_options");
	if (error != 0)
		return error;
	error = kvt__env_init(&outer, &o.hooks);
	if (error != 0)
		return error;
	device = kvt__zalloc(&outer, sizeof(*device));
	if (device == NULL) {
		kvt__env_fini(&outer);
		return kvt__fail(KVT_ENOMEM, "kvt_device_open: out of memory");
	}
	error = kvt__env_init(&device->env, &o.hooks);
	if (error != 0)
		goto out_free;
	device->fork_generation = kvt__fork_generation;
	error = kvt__device_find(o.name != NULL ? o.name : "host", &device->ops);
	if (error == 0)
		error = device->ops.open(&device->env.host, o.ordinal, &device->device);
	if (error != 0) {
		kvt__env_fini(&device->env);
		goto out_free;
	}
	kvt__env_fini(&outer);
	*devicep = device;
	return 0;

out_free:
	kvt__free(&outer, device);
	kvt__env_fini(&outer);
	return error;
}

int kvt_device_probe(const struct kvt_device_options *options, kvt_probe_fn callback, void *context)
{
	struct kvt_device_options o;
	struct kvt_device_ops ops;
	struct kvt_device *device = NULL;
	struct kvt__env env = {0};
	int error;

	if (callback == NULL)
		return kvt__fail(KVT_EINVAL, "kvt_device_probe: callback: NULL");
	error = kvt__copy_options(&o, sizeof(o), options,
				  offsetof(struct kvt_device_options, ordinal),
				  "kvt_device_options");
	if (error == 0)
		error = kvt__device_find(o.name != NULL ? o.name : "host", &ops);
	if (error != 0)
		return error;
	callback(context, "device", ops.name, 0);
	if (ops.probe == NULL) {
		error = kvt_device_open(&o, &device);
		if (error == 0)
			error = kvt_device_close(device);
		return error;
	}
	error = kvt__env_init(&env, &o.hooks);
	if (error != 0)
		return error;
	error = ops.probe(&env.host, o.ordinal, callback, context);
	kvt__env_fini(&env);
	return error;
}

int kvt_device_close(struct kvt_device *device)
{
	struct kvt__env outer = {0};

	if (device == NULL)
		return 0;
	if (device->fork_generation != kvt__fork_generation) {
		if (device->ops.forked != NULL)
			device->ops.forked(device->device);
	} else {
		uint32_t users = atomic_load(&device->users);

		if (users != 0)
			return kvt__fail(KVT_EBUSY,
					 "kvt_device_close: %u workers and stream completions use "
					 "the device",
					 users);
		device->ops.close(device->device);
	}
	outer.hooks = device->env.hooks; /* the device frees itself with its own hooks */
	kvt__env_fini(&device->env);
	kvt__free(&outer, device);
	return 0;
}
