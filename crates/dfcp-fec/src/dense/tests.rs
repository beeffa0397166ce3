//! What cannot be seen from outside: forced rank deficiency and slot juggling.
