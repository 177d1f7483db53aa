/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS signature version 4 in the Authorization header, for S3: the path is encoded once and signed
 * exactly as it is sent, and x-amz-content-sha256 is always among the signed headers.
 *
 * A request costs about a microsecond: digest contexts are used again without another fetch, the
 * canonical request goes through a small buffer into the digest, and the derived key is kept. HMAC
 * is written out here, since that of OpenSSL 3 copies contexts through the heap and that of 1.1 is
 * gone there.
 */
#include "sign.h"

#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "config.h"

#define SHA256_BYTES	 32
#define SHA256_BLOCK	 64
#define MAX_SECRET_BYTES 1024
#define MAX_ACCESS_KEY	 1024
#define MAX_REGION_BYTES 128
#define MAX_QUERY_PAIRS	 16
#define SECONDS_OF_A_DAY 86400
#define LAST_SECOND	 253402300799 /* of the year 9999 */
#define ALGORITHM	 "AWS4-HMAC-SHA256"
#define SCOPE_END	 "/s3/aws4_request"
#define SIGNED_BY_US	 4 /* host and the three x-amz headers */
#define PENDING_BYTES	 2048
#define DAY_TEXT_BYTES	 8  /* "20130524" */
#define DATE_TEXT_BYTES	 16 /* "20130524T000000Z" */

/* The two blocks that a key turns into before it meets a message. */
struct hmac_key {
	uint8_t inner[SHA256_BLOCK], outer[SHA256_BLOCK];
};

struct s3_signer {
	EVP_MD_CTX *digest;  /* of requests */
	EVP_MD_CTX *payload; /* of memory in pieces, which may be open while requests are signed */

	/* Input of `digest` that was not handed on yet, and whether some of it failed. */
	size_t pending_bytes;
	bool failed;
	char pending[PENDING_BYTES];

	/* The day as text, and the key derived for (secret, day, region). */
	int64_t day; /* since 1970; INT64_MIN: none yet */
	char day_text[DAY_TEXT_BYTES];
	bool derived;
	size_t secret_bytes, region_bytes;
	char secret[MAX_SECRET_BYTES], region[MAX_REGION_BYTES];
	struct hmac_key key;
};

/* Text that is put together in a buffer of fixed size. */
struct text {
	char *at;
	size_t bytes, room;
	bool full;
};

/* ---- Digests ---- */

static bool begin_digest(EVP_MD_CTX *digest)
{
	/* NULL: the algorithm it was made with, without looking it up again. */
	return EVP_DigestInit_ex(digest, NULL, NULL) == 1;
}

static bool end_digest(EVP_MD_CTX *digest, uint8_t hash[SHA256_BYTES])
{
	return EVP_DigestFinal_ex(digest, hash, NULL) == 1;
}

static EVP_MD_CTX *create_digest(void)
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();

	if (digest != NULL && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1) {
		EVP_MD_CTX_free(digest);
		digest = NULL;
	}
	return digest;
}

static void write_hex(const uint8_t hash[SHA256_BYTES], char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < SHA256_BYTES; i++) {
		*out++ = digits[hash[i] >> 4];
		*out++ = digits[hash[i] & 15];
	}
}

static bool hmac(EVP_MD_CTX *digest, const struct hmac_key *key, const void *data, size_t bytes,
		 uint8_t mac[SHA256_BYTES])
{
	return begin_digest(digest) && EVP_DigestUpdate(digest, key->inner, SHA256_BLOCK) == 1 &&
	       EVP_DigestUpdate(digest, data, bytes) == 1 && end_digest(digest, mac) &&
	       begin_digest(digest) && EVP_DigestUpdate(digest, key->outer, SHA256_BLOCK) == 1 &&
	       EVP_DigestUpdate(digest, mac, SHA256_BYTES) == 1 && end_digest(digest, mac);
}

static bool set_hmac_key(EVP_MD_CTX *digest, struct hmac_key *key, const void *data, size_t bytes)
{
	uint8_t block[SHA256_BLOCK] = {0};
	bool ok = true;

	if (bytes <= SHA256_BLOCK)
		memcpy(block, data, bytes);
	else
		ok = begin_digest(digest) && EVP_DigestUpdate(digest, data, bytes) == 1 &&
		     end_digest(digest, block);
	for (size_t i = 0; i < SHA256_BLOCK; i++) {
		key->inner[i] = block[i] ^ 0x36;
		key->outer[i] = block[i] ^ 0x5c;
	}
	OPENSSL_cleanse(block, sizeof(block));
	return ok;
}

/* ---- Input of the digest, in few pieces ---- */

static void flush(struct s3_signer *signer)
{
	if (EVP_DigestUpdate(signer->digest, signer->pending, signer->pending_bytes) != 1)
		signer->failed = true;
	signer->pending_bytes = 0;
}

static void add(struct s3_signer *signer, const char *data, size_t bytes)
{
	if (bytes > PENDING_BYTES - signer->pending_bytes)
		flush(signer);
	if (bytes > PENDING_BYTES) {
		if (EVP_DigestUpdate(signer->digest, data, bytes) != 1)
			signer->failed = true;
		return;
	}
	memcpy(signer->pending + signer->pending_bytes, data, bytes);
	signer->pending_bytes += bytes;
}

static void add_line(struct s3_signer *signer, const char *text)
{
	add(signer, text, strlen(text));
	add(signer, "\n", 1);
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

/* Without blanks at its ends, and one for each run of them inside. False when it has a byte that
 * would end the header. */
static bool add_value(struct s3_signer *signer, const char *value)
{
	while (is_blank(*value))
		value++;
	for (;;) {
		const char *word = value;

		while (*value != '\0' && !is_blank(*value)) {
			if (*value == '\n' || *value == '\r')
				return false;
			value++;
		}
		add(signer, word, (size_t)(value - word));
		while (is_blank(*value))
			value++;
		if (*value == '\0')
			return true;
		add(signer, " ", 1);
	}
}

static void append(struct text *text, const char *data, size_t bytes)
{
	if (bytes > text->room - text->bytes) {
		text->full = true;
		return;
	}
	memcpy(text->at + text->bytes, data, bytes);
	text->bytes += bytes;
}

/* ---- Days and keys ---- */

static void write_number(char *out, uint32_t value, size_t digits)
{
	for (; digits > 0; digits--) {
		out[digits - 1] = (char)('0' + value % 10);
		value /= 10;
	}
}

/* The civil date of a day since 1970, in eras of 400 years that begin in March. Not gmtime, which
 * takes a lock that all threads share. */
static void write_day(char text[DAY_TEXT_BYTES], int64_t days)
{
	const uint32_t since_era = (uint32_t)((days + 719468) % 146097);
	const uint32_t era = (uint32_t)((days + 719468) / 146097);
	const uint32_t year =
		(since_era - since_era / 1460 + since_era / 36524 - since_era / 146096) / 365;
	const uint32_t day = since_era - (365 * year + year / 4 - year / 100);
	const uint32_t from_march = (5 * day + 2) / 153;
	const uint32_t month = from_march < 10 ? from_march + 3 : from_march - 9;

	write_number(text, year + era * 400 + (month <= 2), 4);
	write_number(text + 4, month, 2);
	write_number(text + 6, day - (153 * from_march + 2) / 5 + 1, 2);
}

static void write_date(struct s3_signer *signer, time_t now, char date[DATE_TEXT_BYTES + 1])
{
	const int64_t day = now / SECONDS_OF_A_DAY;
	const uint32_t second = (uint32_t)(now % SECONDS_OF_A_DAY);

	if (day != signer->day) {
		write_day(signer->day_text, day);
		signer->day = day;
		signer->derived = false;
	}
	memcpy(date, signer->day_text, DAY_TEXT_BYTES);
	date[8] = 'T';
	write_number(date + 9, second / 3600, 2);
	write_number(date + 11, second / 60 % 60, 2);
	write_number(date + 13, second % 60, 2);
	date[15] = 'Z';
	date[16] = '\0';
}

static bool chain(EVP_MD_CTX *digest, struct hmac_key *key, const void *data, size_t bytes)
{
	uint8_t mac[SHA256_BYTES];
	const bool ok =
		hmac(digest, key, data, bytes, mac) && set_hmac_key(digest, key, mac, sizeof(mac));

	OPENSSL_cleanse(mac, sizeof(mac));
	return ok;
}

/* Derives the key of the current day unless it is there. */
static int derive(struct s3_signer *signer, const char *secret, const char *region)
{
	const size_t secret_bytes = strlen(secret), region_bytes = strlen(region);
	char first[4 + MAX_SECRET_BYTES];
	bool ok;

	if (secret_bytes > MAX_SECRET_BYTES || region_bytes > MAX_REGION_BYTES)
		return KVT_EINVAL;
	if (signer->derived && signer->secret_bytes == secret_bytes &&
	    signer->region_bytes == region_bytes &&
	    memcmp(signer->secret, secret, secret_bytes) == 0 &&
	    memcmp(signer->region, region, region_bytes) == 0)
		return 0;

	signer->derived = false;
	memcpy(first, "AWS4", 4);
	memcpy(first + 4, secret, secret_bytes);
	ok = set_hmac_key(signer->digest, &signer->key, first, 4 + secret_bytes) &&
	     chain(signer->digest, &signer->key, signer->day_text, DAY_TEXT_BYTES) &&
	     chain(signer->digest, &signer->key, region, region_bytes) &&
	     chain(signer->digest, &signer->key, "s3", 2) &&
	     chain(signer->digest, &signer->key, "aws4_request", 12);
	OPENSSL_cleanse(first, sizeof(first));
	if (!ok)
		return KVT_ENOMEM;
	OPENSSL_cleanse(signer->secret, sizeof(signer->secret));
	memcpy(signer->secret, secret, secret_bytes);
	signer->secret_bytes = secret_bytes;
	memcpy(signer->region, region, region_bytes);
	signer->region_bytes = region_bytes;
	signer->derived = true;
	return 0;
}

/* ---- The request ---- */

/* Canonical headers into the digest and their names into `names`, merged in order with ours, which
 * are sorted too. */
static int add_headers(struct s3_signer *signer, const struct s3_pair *ours, size_t our_count,
		       const struct s3_pair *theirs, size_t their_count, struct text *names)
{
	const char *last = NULL;

	while (our_count > 0 || their_count > 0) {
		const bool take_ours = their_count == 0 ||
				       (our_count > 0 && strcmp(ours->name, theirs->name) <= 0);
		const struct s3_pair *header = take_ours ? ours++ : theirs++;
		const size_t name_bytes = strlen(header->name);

		if (take_ours)
			our_count--;
		else
			their_count--;
		if (last != NULL && strcmp(last, header->name) >= 0)
			return KVT_EINVAL; /* not sorted, or twice */
		if (last != NULL)
			append(names, ";", 1);
		last = header->name;
		append(names, header->name, name_bytes);
		add(signer, header->name, name_bytes);
		add(signer, ":", 1);
		if (!add_value(signer, header->value))
			return KVT_EINVAL;
		add(signer, "\n", 1);
	}
	return 0;
}

/* The hash of the canonical request; the names of its headers are appended to `text`. */
static int hash_request(struct s3_signer *signer, const struct s3_credentials *credentials,
			const struct s3_sign_request *request, const char *date, struct text *text,
			char hex[2 * SHA256_BYTES])
{
	const struct s3_pair ours[SIGNED_BY_US] = {
		{"host", request->host},
		{"x-amz-content-sha256", request->payload_sha256},
		{"x-amz-date", date},
		{"x-amz-security-token", credentials->session_token},
	};
	const size_t our_count = SIGNED_BY_US - (credentials->session_token == NULL);
	const size_t names_at = text->bytes;
	uint8_t hash[SHA256_BYTES];
	int error;

	signer->pending_bytes = 0;
	signer->failed = !begin_digest(signer->digest);
	add_line(signer, request->method);
	add_line(signer, request->path);
	add_line(signer, request->query);
	error = add_headers(signer, ours, our_count, request->headers, request->header_count, text);
	if (error != 0)
		return error;
	add(signer, "\n", 1);
	add(signer, text->at + names_at, text->bytes - names_at);
	add(signer, "\n", 1);
	add(signer, request->payload_sha256, strlen(request->payload_sha256));
	flush(signer);
	if (signer->failed || !end_digest(signer->digest, hash))
		return KVT_ENOMEM;
	write_hex(hash, hex);
	return 0;
}

/* The signature of a canonical request that has this hash. */
static int sign_hash(struct s3_signer *signer, const char *date, const char *scope,
		     size_t scope_bytes, const char hex[2 * SHA256_BYTES],
		     char out[2 * SHA256_BYTES])
{
	char to_sign[sizeof(ALGORITHM) + DATE_TEXT_BYTES + DAY_TEXT_BYTES + MAX_REGION_BYTES +
		     sizeof(SCOPE_END) + 2 * SHA256_BYTES + 8];
	struct text text = {to_sign, 0, sizeof(to_sign), false};
	uint8_t mac[SHA256_BYTES];

	append(&text, ALGORITHM "\n", sizeof(ALGORITHM));
	append(&text, date, DATE_TEXT_BYTES);
	append(&text, "\n", 1);
	append(&text, scope, scope_bytes);
	append(&text, "\n", 1);
	append(&text, hex, 2 * SHA256_BYTES);
	if (text.full)
		return KVT_EINVAL;
	if (!hmac(signer->digest, &signer->key, text.at, text.bytes, mac))
		return KVT_ENOMEM;
	write_hex(mac, out);
	return 0;
}

/* ---- Queries ---- */

static bool is_unreserved(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

/* As strcmp of the encoded texts: "%" stands before all bytes that stay as they are. */
static int compare_encoded(const char *left, const char *right)
{
	unsigned char a, b;

	while (*left != '\0' && *left == *right) {
		left++;
		right++;
	}
	a = (unsigned char)*left;
	b = (unsigned char)*right;
	if (a == '\0' || b == '\0' || is_unreserved(a) == is_unreserved(b))
		return (a > b) - (a < b);
	return is_unreserved(a) ? 1 : -1;
}

static int compare_parameters(const struct s3_pair *left, const struct s3_pair *right)
{
	const int by_name = compare_encoded(left->name, right->name);

	return by_name != 0 ? by_name : compare_encoded(left->value, right->value);
}

static void append_encoded(struct text *text, const char *value)
{
	const size_t bytes = strlen(value);
	size_t written;

	if (bytes == 0)
		return;
	written = kvt__s3_encode(value, bytes, false, text->at + text->bytes,
				 text->room - text->bytes);
	text->bytes += written;
	if (written == 0)
		text->full = true;
}

/* ---- For the other files of the backend ---- */

struct s3_signer *kvt__s3_signer_create(void)
{
	struct s3_signer *signer = calloc(1, sizeof(*signer));

	if (signer == NULL)
		return NULL;
	signer->day = INT64_MIN;
	signer->digest = create_digest();
	signer->payload = create_digest();
	if (signer->digest == NULL || signer->payload == NULL) {
		kvt__s3_signer_destroy(signer);
		return NULL;
	}
	return signer;
}

void kvt__s3_signer_destroy(struct s3_signer *signer)
{
	if (signer == NULL)
		return;
	EVP_MD_CTX_free(signer->digest);
	EVP_MD_CTX_free(signer->payload);
	OPENSSL_cleanse(signer, sizeof(*signer));
	free(signer);
}

int kvt__s3_sign(struct s3_signer *signer, const struct s3_credentials *credentials,
		 const struct s3_sign_request *request, struct s3_signature *signature)
{
	struct text text = {signature->authorization, 0, sizeof(signature->authorization) - 1,
			    false};
	const size_t key_bytes = strlen(credentials->access_key);
	char hex[2 * SHA256_BYTES], mac[2 * SHA256_BYTES];
	size_t scope_at, scope_bytes;
	int error;

	signature->date[0] = '\0';
	signature->authorization[0] = '\0';
	if (request->now < 0 || request->now > LAST_SECOND || key_bytes > MAX_ACCESS_KEY)
		return KVT_EINVAL;
	write_date(signer, request->now, signature->date);
	error = derive(signer, credentials->secret_key, request->region);
	if (error != 0)
		goto out;

	append(&text, ALGORITHM " Credential=", sizeof(ALGORITHM) + 11);
	append(&text, credentials->access_key, key_bytes);
	append(&text, "/", 1);
	scope_at = text.bytes;
	append(&text, signer->day_text, DAY_TEXT_BYTES);
	append(&text, "/", 1);
	append(&text, signer->region, signer->region_bytes);
	append(&text, SCOPE_END, sizeof(SCOPE_END) - 1);
	scope_bytes = text.bytes - scope_at;
	append(&text, ", SignedHeaders=", 16);
	error = hash_request(signer, credentials, request, signature->date, &text, hex);
	if (error != 0)
		goto out;
	error = sign_hash(signer, signature->date, text.at + scope_at, scope_bytes, hex, mac);
	if (error != 0)
		goto out;
	append(&text, ", Signature=", 12);
	append(&text, mac, sizeof(mac));
	if (text.full)
		error = KVT_EINVAL;
out:
	if (error == 0) {
		text.at[text.bytes] = '\0';
	} else {
		signature->date[0] = '\0';
		signature->authorization[0] = '\0';
	}
	return error;
}

int kvt__s3_sha256_begin(struct s3_signer *signer)
{
	return begin_digest(signer->payload) ? 0 : KVT_ENOMEM;
}

int kvt__s3_sha256_add(struct s3_signer *signer, const void *data, size_t bytes)
{
	return EVP_DigestUpdate(signer->payload, data, bytes) == 1 ? 0 : KVT_ENOMEM;
}

int kvt__s3_sha256_end(struct s3_signer *signer, char hex[65])
{
	uint8_t hash[SHA256_BYTES];

	hex[0] = '\0';
	if (!end_digest(signer->payload, hash))
		return KVT_ENOMEM;
	write_hex(hash, hex);
	hex[64] = '\0';
	return 0;
}

size_t kvt__s3_query(const struct s3_pair *parameters, size_t count, char *out, size_t room)
{
	const struct s3_pair *sorted[MAX_QUERY_PAIRS];
	struct text text = {out, 0, room, false};

	if (room == 0)
		return 0;
	out[0] = '\0';
	if (count > MAX_QUERY_PAIRS)
		return 0;
	for (size_t i = 0; i < count; i++) {
		size_t at = i;

		for (; at > 0 && compare_parameters(sorted[at - 1], &parameters[i]) > 0; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = &parameters[i];
	}
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			append(&text, "&", 1);
		append_encoded(&text, sorted[i]->name);
		append(&text, "=", 1);
		append_encoded(&text, sorted[i]->value);
	}
	if (text.full || text.bytes == text.room) {
		out[0] = '\0';
		return 0;
	}
	out[text.bytes] = '\0';
	return text.bytes;
}
