#include "daemon/valkey/tls_words.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/text.h"

#define NAME_BYTES 96
#define NAMES_BYTES 120
#define DATE_BYTES 32

/* --- certificates --- */

static void print_name(const X509_NAME *name, char text[NAME_BYTES])
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *bytes = NULL;
    long length;

    text[0] = '\0';
    if (bio == NULL) {
        return;
    }
    X509_NAME_print_ex(bio, name, 0, XN_FLAG_ONELINE);
    length = BIO_get_mem_data(bio, &bytes);
    if (length > 0) {
        proto_text_quote(text, NAME_BYTES, bytes, (size_t)length);
    }
    BIO_free(bio);
}

static void print_date(const ASN1_TIME *date, char text[DATE_BYTES])
{
    struct tm tm;

    if (ASN1_TIME_to_tm(date, &tm) != 1 || strftime(text, DATE_BYTES, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0) {
        snprintf(text, DATE_BYTES, "an unreadable date");
    }
}

static void append(char names[NAMES_BYTES], const char *name)
{
    size_t used = strlen(names);

    snprintf(names + used, NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
}

static void append_address(char names[NAMES_BYTES], const ASN1_OCTET_STRING *address)
{
    char text[INET6_ADDRSTRLEN];
    int length = ASN1_STRING_length(address);

    if ((length == 4 || length == 16) && inet_ntop(length == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(address),
                                                   text, sizeof(text)) != NULL) {
        append(names, text);
    }
}

/* The names that it is for. */
static void print_names(X509 *certificate, char names[NAMES_BYTES])
{
    GENERAL_NAMES *all = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    char text[NAME_BYTES];

    names[0] = '\0';
    for (int i = 0; i < sk_GENERAL_NAME_num(all); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(all, i);
        if (name->type == GEN_DNS) {
            append(names, proto_text_quote(text, sizeof(text), (const char *)ASN1_STRING_get0_data(name->d.dNSName),
                                           (size_t)ASN1_STRING_length(name->d.dNSName)));
        } else if (name->type == GEN_IPADD) {
            append_address(names, name->d.iPAddress);
        }
    }
    GENERAL_NAMES_free(all);
}

static void explain_mismatch(X509 *certificate, const char *wanted, char *why, size_t size)
{
    char names[NAMES_BYTES];

    print_names(certificate, names);
    snprintf(why, size, "is not for '%.80s' but for: %s; set [valkey] tls_server_name to a name that it has, or give "
             "the server a certificate for this one", wanted, names[0] != '\0' ? names : "no name at all");
}

static void explain_check(int error, X509 *certificate, const char *wanted, char *why, size_t size)
{
    char date[DATE_BYTES];

    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        print_date(X509_get0_notAfter(certificate), date);
        snprintf(why, size, "has expired on %s; renew it, or set this host's clock", date);
        break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        print_date(X509_get0_notBefore(certificate), date);
        snprintf(why, size, "is not valid before %s; check the clocks of both hosts", date);
        break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        explain_mismatch(certificate, wanted, why, size);
        break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        snprintf(why, size, "was not signed by an authority of [valkey] tls_ca (%s); put the certificate of the one "
                 "that signed it there", X509_verify_cert_error_string(error));
        break;
    default:
        snprintf(why, size, "cannot be accepted: %s", X509_verify_cert_error_string(error));
        break;
    }
}

void tls_words_certificate(X509_STORE_CTX *verification, const char *wanted, char *why, size_t size)
{
    X509 *certificate = X509_STORE_CTX_get_current_cert(verification);
    char subject[NAME_BYTES], issuer[NAME_BYTES], check[320];
    int error = X509_STORE_CTX_get_error(verification);

    if (certificate == NULL) {
        snprintf(why, size, "the server's certificate cannot be verified: %s", X509_verify_cert_error_string(error));
        return;
    }
    print_name(X509_get_subject_name(certificate), subject);
    print_name(X509_get_issuer_name(certificate), issuer);
    explain_check(error, certificate, wanted, check, sizeof(check));
    snprintf(why, size, "the certificate '%.90s' (issuer '%.90s') %s", subject, issuer, check);
}

/* --- errors and alerts --- */

static const struct {
    int reason;
    const char *words;
} meanings[] = {
    {SSL_R_WRONG_VERSION_NUMBER, "the answer is no TLS; is this the server's port for TLS (tls-port)?"},
    {SSL_R_PACKET_LENGTH_TOO_LONG, "the answer is no TLS; is this the server's port for TLS (tls-port)?"},
    {SSL_R_HTTP_REQUEST, "the answer is no TLS; is this the server's port for TLS (tls-port)?"},
    {SSL_R_UNSUPPORTED_PROTOCOL, "the server offers no version of TLS from 1.2 on (its tls-protocols)"},
    {SSL_R_VERSION_TOO_LOW, "the server offers no version of TLS from 1.2 on (its tls-protocols)"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "the server offers no version of TLS from 1.2 on (its tls-protocols)"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
     "the server demands a client certificate: set [valkey] tls_certificate and tls_key"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE,
     "the server refused: it may demand a client certificate ([valkey] tls_certificate and tls_key), or share no cipher "
     "with us"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "the server does not accept [valkey] tls_certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "the server does not accept [valkey] tls_certificate"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, "the server says that [valkey] tls_certificate has been revoked"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, "the server says that [valkey] tls_certificate has expired: renew it"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA,
     "the server does not know the authority of [valkey] tls_certificate (its tls-ca-cert-file)"},
};

void tls_words_error(unsigned long code, char *why, size_t size)
{
    const char *reason = ERR_reason_error_string(code);

    for (size_t i = 0; ERR_GET_LIB(code) == ERR_LIB_SSL && i < sizeof(meanings) / sizeof(meanings[0]); i++) {
        if (ERR_GET_REASON(code) == meanings[i].reason) {
            snprintf(why, size, "%s", meanings[i].words);
            return;
        }
    }
    snprintf(why, size, "%s", code == 0 || reason == NULL ? "the other side broke the rules of TLS" : reason);
}
