/// The content of `streamd.toml`, checked: every number is in its range, every name is looked up, every secret is read.
///
/// Values only; two equal configurations have the same effect.
struct Configuration: Sendable, Equatable {
  var server = Server()
  var log = Log()
  var http = Upstreams()
  /// `nil`: no stream is shared with other hosts.
  var cluster: Cluster?
  /// In the order of the file. Names are unique, and so are the secrets.
  var tokens: [Token] = []
  /// In the order of the file. Names are unique.
  var streams: [Stream] = []
}
