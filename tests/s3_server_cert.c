/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates for tests of TLS: a CA made on the spot, and what it signs. */
#include "s3_server_internal.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_S 86400L

static bool add_extension(X509 *certificate, int nid, const char *value)
{
	X509V3_CTX context;
	X509_EXTENSION *extension;
	bool good;

	X509V3_set_ctx_nodb(&context);
	X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &context, nid, (char *)(uintptr_t)value);
	good = extension && X509_add_ext(certificate, extension, -1);
	X509_EXTENSION_free(extension);
	return good;
}

static X509 *certificate_make(EVP_PKEY *key, const char *name, X509 *issuer, EVP_PKEY *issuer_key,
			      const char *alternative, long from_s, long until_s)
{
	X509 *c = X509_new();
	X509_NAME *subject;
	uint8_t serial[8];
	bool good = c && EVP_PKEY_get_id(key) > 0;

	if (!good)
		goto out;
	(void)RAND_bytes(serial, sizeof(serial));
	serial[0] &= 0x7f;
	serial[0] |= 1;
	X509_set_version(c, 2);
	ASN1_STRING_set(X509_get_serialNumber(c), serial, sizeof(serial));
	subject = X509_get_subject_name(c);
	good = X509_gmtime_adj(X509_getm_notBefore(c), from_s) &&
	       X509_gmtime_adj(X509_getm_notAfter(c), until_s) && X509_set_pubkey(c, key) &&
	       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const uint8_t *)name, -1,
					  -1, 0) &&
	       X509_set_issuer_name(c, issuer ? X509_get_subject_name(issuer) : subject) &&
	       add_extension(c, NID_basic_constraints,
			     issuer ? "critical,CA:FALSE" : "critical,CA:TRUE") &&
	       (!alternative || add_extension(c, NID_subject_alt_name, alternative)) &&
	       X509_sign(c, issuer_key, EVP_sha256());
out:
	if (good)
		return c;
	X509_free(c);
	return NULL;
}

/* The PEM text of either, allocated. */
static char *pem(X509 *certificate, EVP_PKEY *key)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL, *data = NULL;
	long bytes;

	if (bio && (certificate ? PEM_write_bio_X509(bio, certificate)
				: PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL))) {
		bytes = BIO_get_mem_data(bio, &data);
		text = malloc((size_t)bytes + 1);
		if (text) {
			memcpy(text, data, (size_t)bytes);
			text[bytes] = '\0';
		}
	}
	BIO_free(bio);
	return text;
}

bool s3_server_certify(const char *host, enum s3_server_certificate kind, char **cap, char **certp,
		       char **keyp)
{
	EVP_PKEY *ca_key = EVP_EC_gen("P-256"), *key = EVP_EC_gen("P-256");
	X509 *ca = NULL, *certificate = NULL;
	char alternative[300], name[256], authority[32];
	uint64_t number = 0;
	uint8_t address[16];
	bool is_address =
		inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
	bool expired = kind == S3_CERT_EXPIRED;

	*cap = *certp = *keyp = NULL;
	snprintf(name, sizeof(name), "%s", kind == S3_CERT_OTHER_NAME ? "other.test" : host);
	snprintf(alternative, sizeof(alternative), "%s:%s",
		 is_address && kind != S3_CERT_OTHER_NAME ? "IP" : "DNS", name);
	/* Two of one name would be taken for each other. */
	(void)RAND_bytes((uint8_t *)&number, sizeof(number));
	snprintf(authority, sizeof(authority), "test CA %016llx", (unsigned long long)number);
	if (ca_key && key)
		ca = certificate_make(ca_key, authority, NULL, ca_key, NULL, -30 * DAY_S,
				      30 * DAY_S);
	if (ca)
		certificate = certificate_make(key, "test server", ca, ca_key, alternative,
					       -20 * DAY_S, expired ? -10 * DAY_S : 20 * DAY_S);
	if (certificate) {
		*cap = pem(ca, NULL);
		*certp = pem(certificate, NULL);
		*keyp = pem(NULL, key);
	}
	X509_free(certificate);
	X509_free(ca);
	EVP_PKEY_free(key);
	EVP_PKEY_free(ca_key);
	return *cap && *certp && *keyp;
}
