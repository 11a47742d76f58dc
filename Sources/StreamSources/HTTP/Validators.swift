/// What a server said about the version of what it sent, to be asked about the next time.
struct Validators: Equatable, Sendable {
  /// What answered, after redirects: validators mean something there alone.
  let url: String
  let entityTag: String?
  let lastModified: String?

  /// Bytes of either, and of the id of a server-sent event: what a server gives us is sent back with each request.
  static let limit = 1 << 10

  /// - Returns: nil for a validator that is too long to be kept.
  static func fitting(_ text: String?) -> String? {
    text.flatMap { $0.utf8.count <= limit ? $0 : nil }
  }
}
