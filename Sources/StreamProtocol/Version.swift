import CVersion

/// The version of the project, which its programs, its packages, `$stats` and requests to upstreams show. Defined only
/// here.
public enum Version {
  /// Semantic versioning. Covers the wire protocols, the configuration, saved state and the libraries' API.
  public static let current = "0.3.0"

  /// `0.3.0`, followed by the commit in parentheses if the build knows it.
  public static let description: String = {
    let commit = unsafe String(cString: streamd_commit())
    return commit.isEmpty ? current : "\(current) (\(commit))"
  }()
}
