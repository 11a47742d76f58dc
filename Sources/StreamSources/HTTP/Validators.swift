/// The value of a header field, as the server sent it: bytes that need not be UTF-8. They go back unchanged.
struct FieldValue: Hashable, Sendable, ExpressibleByStringLiteral {
  let bytes: [UInt8]

  init(_ bytes: [UInt8]) { self.bytes = bytes }

  init(stringLiteral text: String) { bytes = Array(text.utf8) }

  /// The text for comparing and reading; bytes that are not UTF-8 are replaced.
  var text: String { String(decoding: bytes, as: UTF8.self) }

  /// Whether a header field can contain it. Source: RFC 9110, 5.5.
  var isValid: Bool { bytes.allSatisfy { $0 == 0x09 || ($0 >= 0x20 && $0 != 0x7F) } }
}

/// A response's validators, for the next conditional request.
struct Validators: Equatable, Sendable {
  /// The URL that responded, after redirects: validators are valid only there.
  let url: String
  let entityTag: FieldValue?
  let lastModified: FieldValue?

  /// Maximum bytes of either validator: they are sent back with each request, and stored together.
  static let limit = 1 << 10

  /// - Returns: nil for a validator that is too long.
  static func fitting(_ value: FieldValue?) -> FieldValue? {
    value.flatMap { $0.bytes.count <= limit ? $0 : nil }
  }
}
