/// Which streamd this is: shown by `--version`, in `$stats` and to upstreams.
enum Version {
  /// Semantic versioning; the wire and the configuration file are what it promises.
  static let current = "0.1.0"
}
