#!/bin/bash
# libcotune.so exports what exported_symbols.txt lists, and nothing else; and so does cotune.h declare.
set -eu
folder=integration/capi
nm --dynamic --defined-only --format=posix $folder/libcotune.so.0 | cut -d' ' -f1 | LC_ALL=C sort > "$TEST_TMPDIR/exported"
diff -u $folder/exported_symbols.txt "$TEST_TMPDIR/exported" || { echo "exports differ from the list"; exit 1; }
# Members that are pointers to functions are no declarations.
gcc -E -P $folder/cotune.h | tr '\n' ' ' | sed 's/cotune_result (\*//g' | grep -oE 'cotune_[a-z_]+ ?\(' | tr -d ' (' | LC_ALL=C sort -u > "$TEST_TMPDIR/declared"
diff -u $folder/exported_symbols.txt "$TEST_TMPDIR/declared" || { echo "declarations differ from the list"; exit 1; }
