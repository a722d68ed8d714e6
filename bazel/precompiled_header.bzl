"""A header that GCC reads once for all sources that begin with it."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = ACTION_NAMES.cpp_compile,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            use_pic = True,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        ),
    )

    # GCC looks for HEADER.gch beside HEADER.
    header = ctx.actions.declare_file(ctx.file.src.basename)
    ctx.actions.expand_template(template = ctx.file.src, output = header, substitutions = {})
    precompiled = ctx.actions.declare_file(header.basename + ".gch")
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = ACTION_NAMES.cpp_compile,
        ),
        arguments = flags + ["-x", "c++-header", header.path, "-o", precompiled.path],
        inputs = depset([header], transitive = [toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "CppCompile",
        progress_message = "Compiling %s" % header.basename,
        use_default_shell_env = True,
    )
    return [
        DefaultInfo(files = depset([precompiled])),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([header, precompiled]),
        )),
    ]

precompiled_header = rule(
    doc = """Compiles src with the options of the build. GCC takes the result only in sources with the same options as
far as they affect code; those name it with -include $(GENDIR)/PACKAGE/SRC and have this target among their deps.""",
    implementation = _precompiled_header,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "copts": attr.string_list(doc = "What the sources have besides the options of the build."),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
