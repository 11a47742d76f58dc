/// A response's validators, for the next conditional request.
struct Validators: Equatable, Sendable {
  /// The URL that responded, after redirects: validators are valid only there.
  let url: String
  let entityTag: String?
  let lastModified: String?

  /// Maximum bytes of either validator, and of a server-sent event's id: they are sent back with each request.
  static let limit = 1 << 10

  /// - Returns: nil for a validator that is too long.
  static func fitting(_ text: String?) -> String? {
    text.flatMap { $0.utf8.count <= limit ? $0 : nil }
  }
}
