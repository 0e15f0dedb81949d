// SPDX-License-Identifier: Apache-2.0

#include "valkey/tls.hpp"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstring>
#include <new>

#include "shared/refusal.hpp"

namespace quire::valkey {

namespace {

// Only what is a path at first sight is shown: a file's content, or a password, may have been given
// instead of it.
quire_status refuse_file(const char *option, const std::string &path, quire_error *error) {
    const unsigned long first = ERR_peek_error();
    const char *reason = ERR_SYSTEM_ERROR(first) ? std::strerror(ERR_GET_REASON(first))
                                                 : ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    const bool is_shown = path.starts_with('/') && path.find('\n') == std::string::npos;
    return fail(error, QUIRE_E_ARG, "option '%s': %.200s cannot be used: %s", option,
                is_shown ? path.c_str() : "the file",
                reason != nullptr ? reason : "no reason is known");
}

}  // namespace

void Tls::Free::operator()(SSL_CTX *context) const { SSL_CTX_free(context); }

quire_status Tls::open(const Options &options, quire_error *error) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    SSL_CTX *context = context_.get();
    if (context == nullptr) throw std::bad_alloc();
    name_ = options.tls_name;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    const std::string &ca = options.tls_ca;
    if (ca.empty()) {
        SSL_CTX_set_default_verify_paths(context);
    } else if (SSL_CTX_load_verify_locations(context, ca.c_str(), nullptr) != 1) {
        return refuse_file("tls_ca", ca, error);
    }
    if (options.tls_cert.empty()) return QUIRE_OK;
    if (SSL_CTX_use_certificate_chain_file(context, options.tls_cert.c_str()) != 1) {
        return refuse_file("tls_cert", options.tls_cert, error);
    }
    if (SSL_CTX_use_PrivateKey_file(context, options.tls_key.c_str(), SSL_FILETYPE_PEM) != 1) {
        return refuse_file("tls_key", options.tls_key, error);
    }
    return QUIRE_OK;
}

SSL *Tls::make(const std::string &host) const {
    SSL *ssl = SSL_new(context_.get());
    if (ssl == nullptr) return nullptr;
    const std::string &name = name_.empty() ? host : name_;
    bool is_set = false;
    if (is_numeric(name)) {
        is_set = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1;
    } else {
        is_set = SSL_set1_host(ssl, name.c_str()) == 1 &&
                 SSL_set_tlsext_host_name(ssl, name.c_str()) == 1;
    }
    if (is_set) return ssl;
    SSL_free(ssl);
    return nullptr;
}

}  // namespace quire::valkey
