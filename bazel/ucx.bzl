"""Whether UCX's headers are on this machine, as the repository @ucx."""

def _ucx_repository_impl(context):
    has_ucx = context.path("/usr/include/ucp/api/ucp.h").exists
    if not has_ucx:
        # buildifier: disable=print
        print("UCX's headers are not here (libucx-dev); the backend ucx and its tests are left out")
    context.file("BUILD.bazel", "")

    # Targets that need the headers have these tags, so that //... leaves them out if there are none.
    tags = [] if has_ucx else ["manual"]
    context.file("config.bzl", "HAS_UCX = %s\nUCX_TAGS = %s\n" % (has_ucx, tags))

ucx_repository = repository_rule(
    implementation = _ucx_repository_impl,
    configure = True,
    local = True,
)
