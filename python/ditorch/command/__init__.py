"""The command line's own modules: parser, guard, the tree of commands, completion, man page, and commands that belong
to no other part. parser.py depends on nothing and is used by every command; `import ditorch` loads none of this.

Modules here may import the packages above ditorch (op_tools, module_tools), inside of functions only.
"""
