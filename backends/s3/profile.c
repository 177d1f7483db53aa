/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profile files. The text stays in one block, cut into strings in place; beside it an array of what
 * was found, in the order of the file. Lines that begin with a blank belong to a nested block or to
 * a value of several lines, neither of which has anything for us. Any thread; immutable once open.
 */
#include "profile.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/crypto.h>

struct s3_profile_entry {
	const char *section; /* NULL: of a section that counts for nothing */
	const char *name;    /* lower case; NULL: the section itself */
	const char *value;
};

struct s3_profile_file {
	const struct kvt_host *host;
	char *text;
	size_t room; /* of text */
	struct s3_profile_entry *entries;
	size_t count;
};

static bool s3_is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Cuts blanks off both ends. */
static char *s3_trim(char *text)
{
	size_t bytes;

	while (s3_is_blank(*text))
		text++;
	bytes = strlen(text);
	while (bytes > 0 && s3_is_blank(text[bytes - 1]))
		text[--bytes] = '\0';
	return text;
}

/* Cuts off a comment: # or ; behind a blank. */
static void s3_cut_comment(char *text)
{
	for (char *c = text; *c != '\0'; c++)
		if ((*c == '#' || *c == ';') && (c == text || s3_is_blank(c[-1]))) {
			*c = '\0';
			return;
		}
}

/* Takes quotes off a name with blanks in it. */
static char *s3_unquote(char *text)
{
	size_t bytes = strlen(text);

	if (bytes >= 2 && (text[0] == '"' || text[0] == '\'') && text[bytes - 1] == text[0]) {
		text[bytes - 1] = '\0';
		return text + 1;
	}
	return text;
}

/* The profile that a section's name stands for, NULL when for none. */
static const char *s3_section(char *name, enum s3_profile_kind kind)
{
	static const char word[] = "profile";
	const size_t bytes = sizeof(word) - 1;

	name = s3_trim(name);
	if (kind == S3_PROFILE_CREDENTIALS || strcmp(name, "default") == 0)
		return s3_unquote(name);
	if (strncmp(name, word, bytes) == 0 && s3_is_blank(name[bytes]))
		return s3_unquote(s3_trim(name + bytes));
	return NULL;
}

/* Reads "[name]", the bracket is passed already: false when it is not closed, or something other
 * than a comment follows. */
static bool s3_take_section(char *text, enum s3_profile_kind kind, const char **sectionp)
{
	char *end = strchr(text, ']'), *rest;

	if (end == NULL)
		return false;
	*end = '\0';
	rest = s3_trim(end + 1);
	if (*rest != '\0' && *rest != '#' && *rest != ';')
		return false;
	*sectionp = s3_section(text, kind);
	return true;
}

/* Reads "name = value": false when it is none. */
static bool s3_take_value(char *text, struct s3_profile_entry *entry)
{
	size_t bytes = strcspn(text, "=:");
	char *name;

	if (text[bytes] == '\0')
		return false;
	text[bytes] = '\0';
	name = s3_trim(text);
	for (char *c = name; *c != '\0'; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c = (char)(*c - 'A' + 'a');
	s3_cut_comment(text + bytes + 1);
	entry->name = name;
	entry->value = s3_trim(text + bytes + 1);
	return *name != '\0';
}

/* Room for as many entries as there are lines. */
static int s3_make_entries(struct s3_profile_file *file, const char *path, size_t bytes)
{
	size_t lines = 1;

	for (size_t i = 0; i < bytes; i++)
		lines += file->text[i] == '\n' || file->text[i] == '\r';
	file->entries = file->host->alloc(file->host, lines * sizeof(*file->entries),
					  _Alignof(struct s3_profile_entry));
	if (file->entries == NULL) {
		file->host->fail(file->host, "%s: out of memory", path);
		return KVT_ENOMEM;
	}
	return 0;
}

static size_t s3_line_bytes(const char *line)
{
	size_t bytes = 0;

	while (line[bytes] != '\0' && line[bytes] != '\r' && line[bytes] != '\n')
		bytes++;
	return bytes;
}

static int s3_take_lines(struct s3_profile_file *file, const char *path, char *line,
			 enum s3_profile_kind kind)
{
	const char *section = NULL;

	for (size_t number = 1;; number++) {
		size_t bytes = s3_line_bytes(line);
		bool is_last = line[bytes] == '\0', is_pair = strncmp(line + bytes, "\r\n", 2) == 0;
		struct s3_profile_entry *entry = &file->entries[file->count];
		bool good = true;

		line[bytes] = '\0';
		*entry = (struct s3_profile_entry){.section = section};
		if (*line == '[') {
			good = s3_take_section(line + 1, kind, &section);
			entry->section = section;
			file->count++;
		} else if (!s3_is_blank(*line) && strchr("#;", *line) == NULL) {
			good = s3_take_value(line, entry);
			file->count++;
		}
		if (!good) {
			file->host->fail(file->host,
					 "%s: line %zu, expected [section], name = value, or a "
					 "comment after #",
					 path, number);
			return KVT_ECONFIG;
		}
		if (is_last)
			return 0;
		line += bytes + 1 + is_pair;
	}
}

/* Makes sense of file->text, which has a NUL behind it. */
static int s3_understand(struct s3_profile_file *file, const char *path, size_t bytes,
			 enum s3_profile_kind kind)
{
	size_t bom = bytes >= 3 && memcmp(file->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
	int error;

	file->text[bytes] = '\0';
	if (memchr(file->text, '\0', bytes) != NULL) {
		file->host->fail(file->host, "%s: a NUL, expected text", path);
		return KVT_ECONFIG;
	}
	error = s3_make_entries(file, path, bytes);
	if (error == 0)
		error = s3_take_lines(file, path, file->text + bom, kind);
	return error;
}

static int s3_too_long(const struct kvt_host *host, const char *path)
{
	host->fail(host, "%s: longer than %zu bytes, expected at most that", path,
		   S3_PROFILE_MAX_BYTES);
	return KVT_ECONFIG;
}

static int s3_cannot_read(const struct kvt_host *host, const char *path, int cause)
{
	host->fail(host, "%s: %s, expected a readable file", path, strerror(cause));
	return KVT_ECONFIG;
}

/* An empty one with room for `room` bytes; NULL when out of memory, which was said then. */
static struct s3_profile_file *s3_make(const struct kvt_host *host, const char *path, size_t room)
{
	struct s3_profile_file *file =
		host->alloc(host, sizeof(*file), _Alignof(struct s3_profile_file));

	if (file != NULL) {
		*file = (struct s3_profile_file){.host = host, .room = room};
		file->text = host->alloc(host, room, 1);
		if (file->text != NULL)
			return file;
	}
	host->free(host, file);
	host->fail(host, "%s: out of memory", path);
	return NULL;
}

static bool s3_grow(struct s3_profile_file *file, size_t used)
{
	size_t room = 2 * file->room;
	char *text = file->host->alloc(file->host, room, 1);

	if (text == NULL)
		return false;
	memcpy(text, file->text, used);
	OPENSSL_cleanse(file->text, file->room);
	file->host->free(file->host, file->text);
	file->text = text;
	file->room = room;
	return true;
}

/* Reads to the end, whatever length the file claims to have. */
static int s3_read(struct s3_profile_file *file, const char *path, int fd, size_t *bytesp)
{
	size_t used = 0;

	for (;;) {
		ssize_t got = read(fd, file->text + used, file->room - used - 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return s3_cannot_read(file->host, path, errno);
		if (got == 0)
			break;
		used += (size_t)got;
		if (used > S3_PROFILE_MAX_BYTES)
			return s3_too_long(file->host, path);
		if (used == file->room - 1 && !s3_grow(file, used)) {
			file->host->fail(file->host, "%s: out of memory", path);
			return KVT_ENOMEM;
		}
	}
	*bytesp = used;
	return 0;
}

/* Opens it for reading; never waits for the other end of a pipe. */
static int s3_open(const struct kvt_host *host, const char *path, int *fdp, size_t *bytesp)
{
	struct stat info;
	int cause;

	*fdp = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	cause = *fdp < 0 ? errno : 0;
	/* One in a folder that may not be searched is as good as not there: services run without a
	 * home of their own. */
	if (cause == EACCES && stat(path, &info) != 0)
		cause = ENOENT;
	if (cause == ENOENT || cause == ENOTDIR) {
		host->fail(host, "%s: %s", path, strerror(cause));
		return KVT_ENOENT;
	}
	if (cause == 0 && fstat(*fdp, &info) != 0)
		cause = errno;
	else if (cause == 0 && S_ISDIR(info.st_mode))
		cause = EISDIR;
	if (cause == 0 && !S_ISREG(info.st_mode) && !S_ISCHR(info.st_mode)) {
		host->fail(host, "%s: not a regular file", path);
		cause = -1;
	} else if (cause != 0) {
		(void)s3_cannot_read(host, path, cause);
	} else if ((uint64_t)info.st_size > S3_PROFILE_MAX_BYTES) {
		(void)s3_too_long(host, path);
		cause = -1;
	}
	if (cause != 0 && *fdp >= 0)
		close(*fdp);
	*bytesp = cause == 0 ? (size_t)info.st_size : 0;
	return cause == 0 ? 0 : KVT_ECONFIG;
}

int kvt__s3_profile_open(const struct kvt_host *host, const char *path, enum s3_profile_kind kind,
			 struct s3_profile_file **filep)
{
	struct s3_profile_file *file;
	size_t bytes;
	int fd, error;

	*filep = NULL;
	error = s3_open(host, path, &fd, &bytes);
	if (error != 0)
		return error;
	file = s3_make(host, path, bytes + 2);
	error = file != NULL ? s3_read(file, path, fd, &bytes) : KVT_ENOMEM;
	close(fd);
	if (error == 0)
		error = s3_understand(file, path, bytes, kind);
	if (error == 0)
		*filep = file;
	else
		kvt__s3_profile_close(file);
	return error;
}

int kvt__s3_profile_parse(const struct kvt_host *host, const char *path, const char *text,
			  size_t bytes, enum s3_profile_kind kind, struct s3_profile_file **filep)
{
	struct s3_profile_file *file;
	int error;

	*filep = NULL;
	if (bytes > S3_PROFILE_MAX_BYTES)
		return s3_too_long(host, path);
	file = s3_make(host, path, bytes + 1);
	if (file == NULL)
		return KVT_ENOMEM;
	if (bytes > 0)
		memcpy(file->text, text, bytes);
	error = s3_understand(file, path, bytes, kind);
	if (error == 0)
		*filep = file;
	else
		kvt__s3_profile_close(file);
	return error;
}

void kvt__s3_profile_close(struct s3_profile_file *file)
{
	if (file == NULL)
		return;
	OPENSSL_cleanse(file->text, file->room);
	file->host->free(file->host, file->text);
	file->host->free(file->host, file->entries);
	file->host->free(file->host, file);
}

bool kvt__s3_profile_has(const struct s3_profile_file *file, const char *profile)
{
	for (size_t i = 0; file != NULL && i < file->count; i++)
		if (file->entries[i].section != NULL &&
		    strcmp(file->entries[i].section, profile) == 0)
			return true;
	return false;
}

const char *kvt__s3_profile_get(const struct s3_profile_file *file, const char *profile,
				const char *name)
{
	for (size_t i = file != NULL ? file->count : 0; i-- > 0;) {
		const struct s3_profile_entry *entry = &file->entries[i];

		if (entry->section != NULL && entry->name != NULL &&
		    strcmp(entry->name, name) == 0 && strcmp(entry->section, profile) == 0)
			return *entry->value != '\0' ? entry->value : NULL;
	}
	return NULL;
}
