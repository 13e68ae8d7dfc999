// Compiles the modules below FOLDER/python as Python 3.13 does, for a layer that Lambda unpacks into /opt.
//   node compile.mjs FOLDER
import { loadPyodide } from "pyodide";

const python = await loadPyodide({ stdout: console.error, stderr: console.error });
python.mountNodeFS("/layer", process.argv[2]);
const ok = python.runPython(`
import compileall, py_compile, sys

assert sys.version_info[:2] == (3, 13), sys.version
compileall.compile_dir(
    "/layer/python", quiet=1, stripdir="/layer", prependdir="/opt",
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
)
`);
process.exit(ok ? 0 : 1);
