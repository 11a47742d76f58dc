#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A TOML document as JSON, or why it is none. Owned by the caller until `toml_outcome_free`.
struct toml_outcome {
  /// The document, UTF-8, ends with NUL; null after a mistake.
  ///
  /// Every node is an object of two members: `line` (from 1: where its key stands, or the node itself inside an
  /// array) and one of `string`, `integer`, `boolean`, `array` (of nodes), `table` (name to node), or, as text,
  /// `float` and `date` (any of TOML's dates and times).
  char *json;
  size_t json_length;
  /// What is wrong, one sentence in UTF-8; null after success.
  char *message;
  /// Where it is wrong, both from 1; 0: not known.
  unsigned line, column;
};

/// Reads `length` bytes at `text` as TOML 1.0. Never throws; when memory runs out, that is the message.
///
/// Tables and arrays nest at most 32 deep. A line has at most 256 dots, wherever they stand: each dot of a dotted key
/// is one more table to take apart on the stack.
struct toml_outcome toml_read(const char *text, size_t length);

/// Frees what `outcome` points to. Once for each `toml_read`.
void toml_outcome_free(struct toml_outcome outcome);

#ifdef __cplusplus
}
#endif
