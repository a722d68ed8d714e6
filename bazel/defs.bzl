"""The project's rules: one place that knows how targets are built."""

_WARNINGS = ["-Wall", "-Wextra", "-Werror"]

# What no user runs is compiled at the level that takes the compiler least time; what they run is tested as it ships.
TEST_OPTIMIZATION = ["-Og"]

# GoogleTest, fmt and the standard library take the compiler longer than a test does; a copy that does not fit is an error.
_TEST_HEADERS = ["-include", "$(GENDIR)/bazel/test_headers.h", "-Winvalid-pch"]

# Where the tree of `./dev dist` keeps the libraries that travel along. The old kind of run path, because it also holds
# for what those libraries need themselves.
def _run_path(folder):
    return ["-Wl,--disable-new-dtags", "-Wl,-rpath,'$$ORIGIN/" + folder + "'"]

def cotune_cc_library(name, copts = [], testonly = False, **kwargs):
    optimization = TEST_OPTIMIZATION if testonly else []
    native.cc_library(name = name, copts = _WARNINGS + optimization + copts, testonly = testonly, **kwargs)

def cotune_cc_binary(name, copts = [], linkopts = [], **kwargs):
    native.cc_binary(name = name, copts = _WARNINGS + copts, linkopts = _run_path("../lib") + linkopts, **kwargs)

def cotune_shared_library(name, version_script, run_path = "", copts = [], linkopts = [], **kwargs):
    """A shared library that exports what version_script (a label) names and nothing else.

    Args:
      name: ends in .so.
      version_script: the linker's version script.
      run_path: the folder of the libraries that travel along, from the one that holds this library.
      copts: further compiler options.
      linkopts: further linker options.
      **kwargs: as for cc_binary.
    """
    native.cc_binary(
        name = name,
        copts = _WARNINGS + copts,
        linkshared = True,
        linkstatic = True,
        additional_linker_inputs = [version_script],
        linkopts = _run_path(run_path) + [
            "-Wl,-soname," + name,
            "-Wl,-z,defs",
            "-Wl,--version-script=$(location %s)" % version_script,
        ] + linkopts,
        **kwargs
    )

def cotune_cc_test(
        name,
        copts = [],
        deps = [],
        size = "small",
        linkstatic = True,
        main = True,
        single_threaded = False,
        tags = [],
        **kwargs):
    """A GoogleTest.

    Args:
      name: ends in _test.
      copts: further compiler options.
      deps: without GoogleTest, which every test has.
      size: as for cc_test.
      linkstatic: as for cc_test.
      main: False when the test has its own main.
      single_threaded: the test never starts a thread (its process ends when it does), so the thread sanitizer has
        nothing to find in it and leaves it out.
      tags: as for cc_test.
      **kwargs: as for cc_test.
    """
    native.cc_test(
        name = name,
        size = size,
        copts = _WARNINGS + TEST_OPTIMIZATION + _TEST_HEADERS + copts,
        linkstatic = linkstatic,
        tags = tags + (["single_threaded"] if single_threaded else []),
        deps = deps + [
            "//bazel:test_headers",
            "@sys//:gmock",
            "@sys//:gtest_main" if main else "@sys//:gtest",
        ] + (["//bazel:no_threads_for_test"] if single_threaded else []),
        **kwargs
    )

def cotune_proto_library(name, src, visibility = None):
    """C++ messages of one .proto file, made by Debian's protoc; include them as "folder/file.pb.h"."""
    base = src[:-len(".proto")]
    native.genrule(
        name = name + "_gen",
        srcs = [src],
        outs = [base + ".pb.h", base + ".pb.cc"],
        cmd = "protoc --proto_path=. --cpp_out=$(GENDIR) $(location %s)" % src,
    )
    native.cc_library(
        name = name,
        srcs = [base + ".pb.cc"],
        hdrs = [base + ".pb.h"],
        copts = ["-w"],
        visibility = visibility,
        deps = ["@sys//:protobuf"],
    )

def cotune_plugin(name, **kwargs):
    """A backend plugin: name ends in .so; exports cotune_backend_query_v1 and nothing else."""
    cotune_shared_library(
        name = name,
        version_script = "//bazel:plugin.lds",
        run_path = "../..",
        **kwargs
    )
