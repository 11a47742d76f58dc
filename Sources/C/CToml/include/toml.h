#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A TOML document as JSON, or an error. Owned by the caller until `toml_outcome_free`.
struct toml_outcome {
  /// The document, UTF-8, terminated by NUL; null after an error.
  ///
  /// Every node is an object of two members: `line` (from 1: the line of its key or, inside an array, of the node
  /// itself) and one of `string`, `integer`, `boolean`, `array` (of nodes), `table` (name to node), or, as text,
  /// `float` and `date` (any of TOML's dates and times).
  char *json;
  size_t json_length;
  /// The error, one sentence in UTF-8; null after success.
  char *message;
  /// The place of the error, both from 1; 0: unknown.
  unsigned line, column;
};

/// Parses `length` bytes at `text` as TOML 1.0. Never throws; running out of memory is an error, too.
///
/// Tables and arrays nest at most 32 deep. A line has at most 256 dots outside of strings and comments: each dot of a
/// dotted key is one more table on the stack.
struct toml_outcome toml_read(const char *text, size_t length);

/// Frees what `outcome` points to. Call once for each `toml_read`.
void toml_outcome_free(struct toml_outcome outcome);

#ifdef __cplusplus
}
#endif
