"""PyTorch as `./dev setup --torch` has installed it, as the repository @torch."""

# By the first that exists: the variable, and the place that ./dev uses.
def _candidates(context):
    environment = context.os.environ
    named = environment.get("COTUNE_TORCH", "")
    if named:
        return [named]
    cache = environment.get("XDG_CACHE_HOME", "") or environment.get("HOME", "") + "/.cache"
    return [cache + "/cotune/venv/lib/python3.11/site-packages/torch"]

def _torch_repository_impl(context):
    for candidate in _candidates(context):
        folder = context.path(candidate)
        if folder.exists and folder.get_child("include").exists:
            context.symlink(folder.get_child("include"), "include")
            context.symlink(folder.get_child("lib"), "lib")
            context.symlink(Label("//third_party:torch.BUILD"), "BUILD.bazel")
            context.file("config.bzl", "HAS_TORCH = True\n")
            return
    context.file("BUILD.bazel", "")
    context.file("config.bzl", "HAS_TORCH = False\n")

torch_repository = repository_rule(
    implementation = _torch_repository_impl,
    configure = True,
    environ = ["COTUNE_TORCH", "HOME", "XDG_CACHE_HOME"],
    local = True,
)
