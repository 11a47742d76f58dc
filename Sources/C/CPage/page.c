#include "page.h"

// The compiler takes a file's bytes as they are: SwiftPM's `.embedInCode` makes a literal of numbers of them, which takes 0.13 ms of
// a processor for each byte. `#embed` is of C23.
#pragma clang diagnostic ignored "-Wc23-extensions"

static const unsigned char document[] = {
#embed "page.html"
};

static const unsigned char style[] = {
#embed "page.css"
};

static const unsigned char script[] = {
#embed "table.js"
    , '\n',
#embed "connection.js"
    , '\n',
#embed "clients.js"
    , '\n',
#embed "panel.js"
};

struct page_file page_document(void) { return (struct page_file){document, sizeof document}; }

struct page_file page_style(void) { return (struct page_file){style, sizeof style}; }

struct page_file page_script(void) { return (struct page_file){script, sizeof script}; }
