#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/// A TOML document as a tree, or an error. Owned by the caller until `toml_outcome_free`.
struct toml_outcome {
  /// The document's table; null after an error. Numbers are in the byte order of this machine, not aligned.
  ///
  /// Every node is its line (4 bytes, from 1: the line of its key or, inside an array, of the node itself), its type (a
  /// letter), and its content: `i`, an integer of 8 bytes; `b`, a boolean of 1 byte; `s`, a text; `f` and `d`, a float and
  /// any of TOML's dates and times, as a text; `a`, an array, the number of its nodes (4 bytes) and these; `t`, a table,
  /// the number of its members (4 bytes), and each as its name, a text, and its node. A text is the number of its bytes
  /// (4 bytes) and these, UTF-8.
  char *tree;
  size_t tree_length;
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
