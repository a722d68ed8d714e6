"""The project's rules: one place that knows how targets are built."""

_WARNINGS = ["-Wall", "-Wextra", "-Werror"]

# Code that no user runs is compiled at the level that takes the compiler least time; sanitizers have theirs in .bazelrc.
TEST_OPTIMIZATION = select({
    "//bazel:sanitized": [],
    "//conditions:default": ["-Og"],
})

# GoogleTest, fmt and the standard library take the compiler longer than most files do, so all files are compiled with a
# copy of them: tests, and all code under sanitizers, with all three, and what users run with the last two, at its own
# options. The copy hides includes that are missing; clang-tidy, which reads each file without it, finds those. A copy
# that does not fit (another compiler made it) is a warning, and the headers are read as usual.
def _with_headers(name):
    return ["-include", "$(GENDIR)/bazel/%s.h" % name, "-Winvalid-pch", "-Wno-error=invalid-pch"]

_SHARED_HEADERS = _with_headers("shared_headers")
_SHARED_HEADERS_DEPS = ["//bazel:shared_headers"]
_PRODUCT_HEADERS = _with_headers("product_headers")
_PRODUCT_HEADERS_DEPS = ["//bazel:product_headers"]

def _if_sanitized(values, otherwise):
    return select({
        "//bazel:sanitized": values,
        "//conditions:default": otherwise,
    })

# The folder in which the tree of `./dev dist` keeps the libraries that travel along. The old kind of run path, because it
# also holds for what those libraries need themselves.
def _run_path(folder):
    return ["-Wl,--disable-new-dtags", "-Wl,-rpath,'$$ORIGIN/" + folder + "'"]

def cotune_cc_library(
        name,
        copts = [],
        deps = [],
        testonly = False,
        shared_headers = True,
        measured = False,
        **kwargs):
    """A library in C++.

    Args:
      name: as for cc_library.
      copts: further compiler options.
      deps: as for cc_library.
      testonly: as for cc_library.
      shared_headers: False when the options of the sources differ from those of other code in what they make of headers.
      measured: True for what a benchmark links although it is testonly: it is compiled as what users run.
      **kwargs: as for cc_library.
    """
    copts = _WARNINGS + copts
    if measured:
        pass
    elif shared_headers and testonly:
        copts, deps = TEST_OPTIMIZATION + copts + _SHARED_HEADERS, deps + _SHARED_HEADERS_DEPS
    elif testonly:
        copts = TEST_OPTIMIZATION + copts
    elif shared_headers:
        copts = copts + _if_sanitized(_SHARED_HEADERS, _PRODUCT_HEADERS)
        deps = deps + _if_sanitized(_SHARED_HEADERS_DEPS, _PRODUCT_HEADERS_DEPS)
    native.cc_library(name = name, copts = copts, deps = deps, testonly = testonly, **kwargs)

def cotune_cc_binary(name, copts = [], linkopts = [], **kwargs):
    native.cc_binary(name = name, copts = _WARNINGS + copts, linkopts = _run_path("../lib") + linkopts, **kwargs)

def cotune_shared_library(name, version_script, run_path = "", copts = [], linkopts = [], **kwargs):
    """A shared library that exports what version_script (a label) names and nothing else.

    Args:
      name: ends in .so, or in .so and the number of its interface.
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
        processes = 1,
        tags = [],
        env = {},
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
      processes: among how many that run at once the cases are divided; for tests that mostly wait.
      tags: as for cc_test.
      env: as for cc_test.
      **kwargs: as for cc_test.
    """
    if processes > 1 and (single_threaded or not main or "shard_count" in kwargs):
        fail("%s: several processes need GoogleTest's main and are its shards" % name)
    native.cc_test(
        name = name,
        size = size,
        copts = _WARNINGS + TEST_OPTIMIZATION + _SHARED_HEADERS + copts,
        linkstatic = linkstatic,
        tags = tags + (["single_threaded"] if single_threaded else []) + (["cpu:2"] if processes > 1 else []),
        env = dict(env, COTUNE_TEST_PROCESSES = str(processes)) if processes > 1 else env,
        deps = deps + _SHARED_HEADERS_DEPS + [
            "@sys//:gmock",
            "//bazel:parallel_main" if processes > 1 else "@sys//:gtest_main" if main else "@sys//:gtest",
        ] + (["//bazel:no_threads"] if single_threaded else []),
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
