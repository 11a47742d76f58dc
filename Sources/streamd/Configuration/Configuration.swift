/// The content of `streamd.toml`, checked: every number is in its range, every name is looked up, every secret is read.
///
/// A value: two equal configurations have the same effect.
struct Configuration: Sendable, Equatable {
  var server = Server()
  var log = Log()
  var http = Upstreams()
  /// `nil`: no stream is shared with other hosts.
  var cluster: Cluster?
  /// The tokens in the order of the file. Names and secrets are unique.
  var tokens: [Token] = []
  /// The streams in the order of the files. Names are unique.
  var streams: [Stream] = []
  /// The templates in the order of the files. No two of them have a name in common.
  var templates: [Template] = []

  /// The streams, and one for each template, which has its name: for what they have in common.
  var streamsAndTemplates: [Stream] {
    streams
      + templates.map { template in
        var stream = template.sample
        stream.name = template.name.text
        return stream
      }
  }
}
