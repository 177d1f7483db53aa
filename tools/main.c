/* SPDX-License-Identifier: Apache-2.0 */
/* The command-line tool. Everything but this file is a library of its own, for tests. */
#include "cli.h"

int main(int argc, char **argv)
{
	return cli_run(argc, argv);
}
