// SPDX-License-Identifier: Apache-2.0
//
// tls: the settings that all encrypted connections share: who is trusted, and who we are.
//
// A node's certificate must be signed by someone trusted, and name the node: `tls_name`, or the
// address that the connection goes to.
//
// Threads: any after open().
#pragma once

#include <memory>
#include <string>

#include "valkey/options.hpp"

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;

namespace quire::valkey {

class Tls {
 public:
    // QUIRE_E_ARG: a file cannot be used; the message says which. Throws std::bad_alloc.
    quire_status open(const Options &options, quire_error *error);
    // For one connection; NULL: no memory. The caller frees it.
    SSL *make(const std::string &host) const;

 private:
    struct Free {
        void operator()(SSL_CTX *context) const;
    };
    std::unique_ptr<SSL_CTX, Free> context_;
    std::string name_;
};

}  // namespace quire::valkey
