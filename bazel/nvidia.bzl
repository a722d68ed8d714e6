"""NVIDIA's headers as `./dev setup` has installed them (wheels), as the repository @nvidia.

Its libraries `cuda` and `nccl` are empty on a machine without the wheels; tests that include a header of theirs ask for it
by __has_include, and say why they are skipped. `nvrtc.bzl` has the environment in which tests find NVRTC.
"""

# The variable, or the place that ./dev uses.
def _wheels(context):
    environment = context.os.environ
    named = environment.get("COTUNE_NVIDIA", "")
    if named:
        return context.path(named)
    cache = environment.get("XDG_CACHE_HOME", "") or environment.get("HOME", "") + "/.cache"
    return context.path(cache + "/cotune/venv/lib/python3.11/site-packages/nvidia")

# One library for each folder of headers: name, its place in the folder of the wheels, headers, deps.
_LIBRARIES = [
    ("cuda", "cu13/include", ["*.h", "*.hpp", "crt/**", "nv/**"], []),
    ("nccl", "nccl/include", ["*.h"], [":cuda"]),
]

_LIBRARY = """
cc_library(
    name = "{name}",
    hdrs = glob({headers}),
    includes = {includes},
    visibility = ["//visibility:public"],
    deps = {deps},
)
"""

def _nvidia_repository_impl(context):
    wheels = _wheels(context)
    build = ""
    for name, place, headers, deps in _LIBRARIES:
        folder = wheels
        for part in place.split("/"):
            folder = folder.get_child(part)
        includes = [name] if folder.exists else []
        if includes:
            context.symlink(folder, name)
        build += _LIBRARY.format(
            name = name,
            headers = ["%s/%s" % (name, each) for each in headers],
            includes = includes,
            deps = deps,
        )
    context.file("BUILD.bazel", build)

    # Tests that compile kernels find the compiler by it; none of them is a part of the product.
    nvrtc = wheels.get_child("cu13").get_child("lib").get_child("libnvrtc.so.13")
    environment = {"COTUNE_NVRTC": str(nvrtc)} if nvrtc.exists else {}
    context.file("nvrtc.bzl", "NVRTC_ENVIRONMENT = %r\n" % environment)

nvidia_repository = repository_rule(
    implementation = _nvidia_repository_impl,
    configure = True,
    environ = ["COTUNE_NVIDIA", "HOME", "XDG_CACHE_HOME"],
    local = True,
)
