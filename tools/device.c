/* SPDX-License-Identifier: Apache-2.0 */
/* Devices on the command line: NAME, or NAME:ORDINAL. */
#include "cli.h"

#include <string.h>

int cli_device_argument(const char *text, struct cli_device *device)
{
	const char *colon = strchr(text, ':');
	size_t bytes = colon != NULL ? (size_t)(colon - text) : strlen(text);
	uint64_t ordinal = 0;

	if (bytes == 0 || bytes >= sizeof(device->name) ||
	    (colon != NULL &&
	     (!cli_number_parse(colon + 1, false, &ordinal) || ordinal > UINT32_MAX)))
		return cli_error("--device: '%s', expected NAME or NAME:ORDINAL such as cuda:0",
				 text);
	memcpy(device->name, text, bytes);
	device->name[bytes] = '\0';
	device->ordinal = (uint32_t)ordinal;
	return 0;
}
