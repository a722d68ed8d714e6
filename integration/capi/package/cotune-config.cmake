# find_package(cotune): targets cotune::cotune (libcotune and cotune.h) and cotune::sdk (for plugins in C++20). It lies in
# lib/cmake/cotune of a tree, which may be moved as a whole.
get_filename_component(_cotune_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET cotune::cotune)
  add_library(cotune::cotune SHARED IMPORTED)
  set_target_properties(cotune::cotune PROPERTIES
    IMPORTED_LOCATION "${_cotune_root}/lib/libcotune.so.@MAJOR@"
    IMPORTED_SONAME "libcotune.so.@MAJOR@"
    INTERFACE_INCLUDE_DIRECTORIES "${_cotune_root}/include")
endif()

if(NOT TARGET cotune::sdk)
  add_library(cotune::sdk STATIC IMPORTED)
  set_target_properties(cotune::sdk PROPERTIES
    IMPORTED_LOCATION "${_cotune_root}/lib/libcotune_sdk.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES CXX
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_INCLUDE_DIRECTORIES "${_cotune_root}/include")
endif()

unset(_cotune_root)
