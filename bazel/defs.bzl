"""The project's rules: one place that knows how targets are built."""

_WARNINGS = ["-Wall", "-Wextra", "-Werror"]

def cotune_cc_library(name, copts = [], **kwargs):
    native.cc_library(name = name, copts = _WARNINGS + copts, **kwargs)

def cotune_cc_binary(name, copts = [], **kwargs):
    native.cc_binary(name = name, copts = _WARNINGS + copts, **kwargs)

def cotune_cc_test(name, copts = [], deps = [], size = "small", linkstatic = True, main = True, **kwargs):
    """A GoogleTest; main = False when the test has its own main."""
    native.cc_test(
        name = name,
        size = size,
        copts = _WARNINGS + copts,
        linkstatic = linkstatic,
        deps = deps + ["@sys//:gmock", "@sys//:gtest_main" if main else "@sys//:gtest"],
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

def cotune_plugin(name, srcs = [], deps = [], copts = [], **kwargs):
    """A backend plugin: name ends in .so; exports cotune_backend_query_v1 and nothing else."""
    native.cc_binary(
        name = name,
        srcs = srcs,
        copts = _WARNINGS + ["-fvisibility=hidden"] + copts,
        linkshared = True,
        linkstatic = True,
        additional_linker_inputs = ["//bazel:plugin.lds"],
        linkopts = [
            "-Wl,-z,defs",
            "-Wl,--version-script=$(location //bazel:plugin.lds)",
        ],
        deps = deps,
        **kwargs
    )
