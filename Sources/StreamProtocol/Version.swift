import CVersion

/// The version of the project: of its programs and packages, in `$stats`, and to upstreams. This is its only place.
public enum Version {
  /// Semantic versioning. Covers the wire protocols, the configuration, saved state and the libraries' API.
  public static let current = "0.2.0"

  /// `0.2.0`, followed by the commit in parentheses if the build knows it.
  public static let description: String = {
    let commit = unsafe String(cString: streamd_commit())
    return commit.isEmpty ? current : "\(current) (\(commit))"
  }()
}
