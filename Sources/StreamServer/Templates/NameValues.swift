/// The values of a template's parameters, with which it makes one stream.
///
/// Each has 1 to 128 letters, digits, `.`, `_` and `-`, and is neither `.` nor `..`. No place where a value is written therefore
/// needs an escape: these characters stand for themselves in URLs (RFC 3986, 2.3), header fields, JSON strings and words.
public struct NameValues: Hashable, Sendable {
  /// The parameters in the order of the template's name.
  public let names: [String]
  /// The value of each.
  public let values: [String]

  /// Creates values of the parameters with these names.
  ///
  /// - Precondition: each value is one that a parameter without rules can have.
  public init(_ names: [String], _ values: [String]) {
    precondition(names.count == values.count && values.allSatisfy(NameTemplate.Parameter.any.permits), "\(values)")
    (self.names, self.values) = (names, values)
  }

  /// - Parameter values: each of which a template has matched.
  init(matched values: [String], of names: [String]) { (self.names, self.values) = (names, values) }

  /// The value of a parameter; nil: the template has no parameter of this name.
  public subscript(parameter: String) -> String? { names.firstIndex(of: parameter).map { values[$0] } }
}

extension NameValues: CustomStringConvertible {
  /// The values in the order of the names, such as `city = "oslo", day = "monday"`.
  public var description: String { zip(names, values).map { "\($0) = \"\($1)\"" }.joined(separator: ", ") }
}
