//! The mesh of one process against raw sockets and against other meshes.
