"""The engines that run Keras, behind one interface."""
