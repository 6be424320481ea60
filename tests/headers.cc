// Nothing: CMake compiles the headers of the tests with it, once for all of them.
