/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 against published digests, and at every length around the ends of blocks against
 * OpenSSL. */
#include "support.h"

#include <string.h>

#include <openssl/evp.h>

#include "sha256.h"

static void check_text(const char *text, const char *expected)
{
	uint8_t digest[KVT__SHA256_BYTES];
	char hex[2 * KVT__SHA256_BYTES + 1];

	kvt__sha256(text, strlen(text), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
	assert_string_equal(hex, expected);
}

static void published_digests_are_right(void **state)
{
	(void)state;
	check_text("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	check_text("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	check_text("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
		   "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

static void every_length_up_to_five_blocks_is_as_openssl_says(void **state)
{
	uint8_t data[5 * 64], ours[KVT__SHA256_BYTES], theirs[EVP_MAX_MD_SIZE];
	unsigned bytes = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 151 + 7);
	for (size_t n = 0; n <= sizeof(data); n++) {
		kvt__sha256(data, n, ours);
		assert_int_equal(EVP_Digest(data, n, theirs, &bytes, EVP_sha256(), NULL), 1);
		assert_int_equal(bytes, sizeof(ours));
		assert_memory_equal(ours, theirs, sizeof(ours));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(published_digests_are_right),
		cmocka_unit_test(every_length_up_to_five_blocks_is_as_openssl_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
