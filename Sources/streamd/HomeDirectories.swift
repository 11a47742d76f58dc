import Glibc
import Systemd

/// Home directories, in which the unit of the service may see no program (ProtectHome=).
enum HomeDirectories {
  /// The directories that ProtectHome= hides.
  private static let parents = ["/home", "/root", "/run/user"]
  private static let unit = "streamd.service"
  private static let remedy =
    "ProtectHome=read-only in a drop-in shows them, see /usr/share/doc/streamd/examples/home.conf"

  /// The end of the sentence that a program was not found: that this process sees no home directory. Empty: it does, or
  /// the program is elsewhere.
  /// - Parameter parents: the directories of home directories.
  static func hint(on program: String, parents: [String] = parents) -> String {
    guard let parent = parents.first(where: { program.hasPrefix($0 + "/") }) else { return "" }
    var status = stat()
    // systemd mounts an empty directory over it, which nobody may enter.
    guard unsafe stat(parent, &status) == 0, status.st_mode & 0o777 == 0 else { return "" }
    return "; home directories are hidden here (ProtectHome=): \(remedy)"
  }

  /// The remark of `--check` on programs that the unit hides, although this process sees them; nil: there are none.
  /// - Parameter protection: ProtectHome= of the unit; nil: unknown. Only called if there is such a program.
  static func remark(
    on configuration: Configuration, protection: () -> String? = { ServiceManager.homeProtection(of: unit) }
  ) -> String? {
    let names = configuration.streams.filter { stream in
      guard let program = stream.source.section.executable else { return false }
      return parents.contains { program.hasPrefix($0 + "/") }
    }.map(\.name)
    guard !names.isEmpty, let setting = protection(), ["yes", "tmpfs"].contains(setting) else { return nil }
    return "\(unit) does not see programs in home directories (ProtectHome=\(setting)) of: "
      + "\(names.joined(separator: ", ")); \(remedy)"
  }
}
