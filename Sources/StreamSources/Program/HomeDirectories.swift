import Glibc

/// Home directories, in which the unit of the service may see no program (ProtectHome=).
package enum HomeDirectories {
  /// The directories that ProtectHome= hides.
  package static let parents = ["/home", "/root", "/run/user"]
  package static let remedy =
    "ProtectHome=read-only in a drop-in shows them, see /usr/share/doc/streamd/examples/home.conf"

  /// The end of the sentence that a program was not found: that this process sees no home directory. Empty: it does, or
  /// the program is elsewhere.
  /// - Parameter parents: the directories of home directories.
  package static func hint(on program: String, parents: [String] = parents) -> String {
    guard let parent = parents.first(where: { program.hasPrefix($0 + "/") }) else { return "" }
    var status = stat()
    // systemd mounts an empty directory over it, which nobody may enter.
    guard unsafe stat(parent, &status) == 0, status.st_mode & 0o777 == 0 else { return "" }
    return "; home directories are hidden here (ProtectHome=): \(remedy)"
  }
}
