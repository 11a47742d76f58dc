import Synchronization

/// A unique identifier of a stage in a pipeline, for logs.
public struct CombineIdentifier: Hashable, Sendable, CustomStringConvertible {
  private let value: UInt
  private static let count = Atomic<UInt>(0)

  /// Creates a unique identifier. It is odd, so no object has it.
  public init() { value = Self.count.wrappingAdd(1, ordering: .relaxed).newValue << 1 | 1 }

  /// Creates the identifier of an object, unique during the object's lifetime.
  public init(_ object: AnyObject) { value = UInt(bitPattern: ObjectIdentifier(object)) }

  /// `0x` and the identifier in hexadecimal.
  public var description: String { "0x" + String(value, radix: 16) }
}

/// A type with a unique identity, including value types.
public protocol CustomCombineIdentifierConvertible {
  /// The identifier of this value.
  var combineIdentifier: CombineIdentifier { get }
}

extension CustomCombineIdentifierConvertible where Self: AnyObject {
  /// The object's own identity.
  public var combineIdentifier: CombineIdentifier { CombineIdentifier(self) }
}
