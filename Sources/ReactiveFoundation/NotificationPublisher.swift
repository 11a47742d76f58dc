import Foundation
import Reactive

extension NotificationCenter {
  /// A publisher of the notifications with a name, from one object or from all.
  public func publisher(for name: Notification.Name, object: AnyObject? = nil) -> Publisher {
    Publisher(center: self, name: name, object: object)
  }

  /// Delivers notifications on the thread that posts them.
  ///
  /// Demand: a subscriber without demand misses the notification.
  public struct Publisher: Reactive.Publisher {
    /// The type of the posted notifications.
    public typealias Output = Notification
    /// `Never`: this publisher does not fail.
    public typealias Failure = Never
    /// The notification center.
    public let center: NotificationCenter
    /// The name of the notifications.
    public let name: Notification.Name
    /// The sender of the notifications; `nil`: any.
    public let object: AnyObject?

    /// `center.publisher(for: name, object: object)`
    public init(center: NotificationCenter, name: Notification.Name, object: AnyObject? = nil) {
      self.center = center
      self.name = name
      self.object = object
    }

    /// Attaches the subscriber, until it cancels.
    public func receive<S: Subscriber<Notification, Never>>(subscriber: S) {
      let subject = Posted()
      let observer = center.addObserver(forName: name, object: object, queue: nil) { subject.notifications.send($0) }
      subject.notifications.handleEvents(receiveCancel: own { [center] in center.removeObserver(observer) })
        .subscribe(subscriber)
    }
  }

  /// Serialises notifications from several threads.
  private final class Posted: @unchecked Sendable {  // the subject is thread-safe
    let notifications = PassthroughSubject<Notification, Never>()
  }
}

extension NotificationCenter.Publisher: Equatable {
  /// Whether both deliver the same notifications.
  public static func == (lhs: Self, rhs: Self) -> Bool {
    lhs.center === rhs.center && lhs.name == rhs.name && lhs.object === rhs.object
  }
}
