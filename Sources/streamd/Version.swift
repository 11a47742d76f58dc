/// The version of streamd: shown by `--version`, in `$stats` and to upstreams.
enum Version {
  /// Semantic versioning; covers the wire protocol and the configuration file.
  static let current = "0.1.0"
}
