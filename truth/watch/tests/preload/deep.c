/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * An extension that is loaded with RTLD_DEEPBIND, as PHP does it.
 */
#include <fcntl.h>
#include <unistd.h>

int look(const char *path)
{
	int fd = open(path, O_RDONLY);

	return fd < 0 ? -1 : close(fd);
}
