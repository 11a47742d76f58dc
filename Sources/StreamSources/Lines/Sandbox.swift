import Glibc

/// What a source needs of the service's sandbox.
enum Sandbox {
  /// - Parameters:
  ///   - setting: the setting of the unit.
  ///   - example: the name of the drop-in that is installed as an example.
  /// - Returns: the end of a failure's sentence; empty if the process is no service of systemd.
  static func hint(_ setting: String, in example: String) -> String {
    guard unsafe getenv("STREAMD_UNIT") != nil else { return "" }
    return "; the service may need \(setting) in a drop-in, see /usr/share/doc/streamd/examples/\(example)"
  }
}
