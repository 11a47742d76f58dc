#pragma once

#include <stddef.h>

/// A file of the page that the daemon serves, as it was when the program was built.
struct page_file {
  const unsigned char *bytes;
  size_t count;
};

/// The document, with an empty element for the style sheet and one for the script.
struct page_file page_document(void);

struct page_file page_style(void);

/// The files of the script, one after the other, with an empty line between two.
struct page_file page_script(void);
