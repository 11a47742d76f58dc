import Glibc

// Where the files of logs are.

extension LogStore {
  /// The remark of `--check` on the state directory; nil: there is none.
  static func remark(on configuration: Configuration) -> String? {
    let names = configuration.streamsAndTemplates.filter { $0.keep == .disk }.map(\.name)
    let path = ownFolder(configuration.server) ?? Configuration.Server.standardState
    var status = stat()
    let fault: String? =
      if unsafe stat(path, &status) == 0 {
        status.st_mode & S_IFMT == S_IFDIR ? nil : "is not a directory"
      } else {
        obstacle(toMaking: path).map { "does not exist and cannot be created (\($0))" }
      }
    guard !names.isEmpty, let fault else { return nil }
    return "\(path) \(fault), but is required for keep = \"disk\" of: \(names.joined(separator: ", "))"
  }

  /// The reason why this user cannot make a directory; nil: there is none.
  private static func obstacle(toMaking path: String) -> String? {
    let name = path.split(separator: "/").last?.startIndex ?? path.startIndex
    guard unsafe access(String(path[..<name]), W_OK | X_OK) != 0 else { return nil }
    return unsafe String(cString: strerror(errno))
  }

  /// The state directory that the configuration or the unit sets; nil: neither does.
  static func ownFolder(_ server: Configuration.Server) -> String? {
    server.state ?? variable("STATE_DIRECTORY").map { String($0.prefix { $0 != ":" }) }
  }

  static func variable(_ name: String) -> String? { unsafe getenv(name).map { unsafe String(cString: $0) } }
}
